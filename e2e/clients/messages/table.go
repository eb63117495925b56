// The fields of messages as a table.
package main

import (
	"fmt"
	"io"
	"reflect"
	"sort"
	"strconv"
	"strings"

	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Types with a form of their own in JSON.
var special = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():                               "time",
	reflect.TypeFor[meta.MicroTime]():                          "microtime",
	reflect.TypeFor[resource.Quantity]():                       "quantity",
	reflect.TypeFor[runtime.RawExtension]():                    "raw",
	reflect.TypeFor[meta.FieldsV1]():                           "raw",
	reflect.TypeFor[extensions.JSON]():                         "raw",
	reflect.TypeFor[extensions.JSONSchemaPropsOrBool]():        "schema-or-bool",
	reflect.TypeFor[extensions.JSONSchemaPropsOrArray]():       "schema-or-list",
	reflect.TypeFor[extensions.JSONSchemaPropsOrStringArray](): "schema-or-strings",
}

// A field of a message: what its struct's tags say.
type field struct {
	number int
	name   string // "" for a struct within a struct
	omits  bool   // left out of JSON when it is empty
	goType reflect.Type
	index  int
}

func fields(message reflect.Type) []field {
	var list []field
	for index := range message.NumField() {
		member := message.Field(index)
		tag, found := member.Tag.Lookup("protobuf")
		if !found {
			continue
		}
		number, err := strconv.Atoi(strings.Split(tag, ",")[1])
		must(err)
		name, options, _ := strings.Cut(member.Tag.Get("json"), ",")
		omits := strings.Contains(options, "omitempty") && member.Type.Kind() != reflect.Struct || strings.Contains(options, "omitzero")
		list = append(list, field{number, name, omits, member.Type, index})
	}
	sort.Slice(list, func(a, b int) bool { return list[a].number < list[b].number })
	return list
}

// Returns the name of a type, and the message that it holds.
func typeName(goType reflect.Type) (string, reflect.Type) {
	if name, found := special[goType]; found {
		if strings.HasPrefix(name, "schema-or-") {
			schema, _ := goType.FieldByName("Schema")
			return name + " " + messageName(schema.Type.Elem()), schema.Type.Elem()
		}
		return name, nil
	}
	switch goType.Kind() {
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int32, reflect.Int64:
		return "int", nil
	case reflect.Float64:
		return "double", nil
	case reflect.Pointer:
		name, message := typeName(goType.Elem())
		return "*" + name, message
	case reflect.Map:
		name, message := typeName(goType.Elem())
		return "map " + name, message
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		if goType.Name() != "" && goType.Elem().Kind() == reflect.String {
			return "strings", nil // a message around a list
		}
		name, message := typeName(goType.Elem())
		return "[]" + name, message
	case reflect.Struct:
		return messageName(goType), goType
	}
	panic("no form for " + goType.String())
}

// Returns the last two parts of a package's path and the name of the type.
func messageName(goType reflect.Type) string {
	parts := strings.Split(goType.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], "/") + "." + goType.Name()
}

func table(out io.Writer) {
	messages := map[string]reflect.Type{}
	var visit func(reflect.Type)
	visit = func(message reflect.Type) {
		name := messageName(message)
		if other, found := messages[name]; found {
			if other != message {
				panic("two messages of one name: " + name)
			}
			return
		}
		messages[name] = message
		for _, field := range fields(message) {
			if _, held := typeName(field.goType); held != nil {
				visit(held)
			}
		}
	}
	for _, root := range roots {
		message := reflect.TypeOf(root.object)
		fmt.Fprintf(out, "kind %s %s %s\n", root.apiVersion, root.kind, messageName(message))
		visit(message)
	}
	names := make([]string, 0, len(messages))
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "\nmessage %s\n", name)
		for _, field := range fields(messages[name]) {
			kind, _ := typeName(field.goType)
			fmt.Fprintf(out, "%d %s %s%s\n", field.number, or(field.name, "-"), kind, map[bool]string{true: " omitempty"}[field.omits])
		}
	}
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
