// Objects with random fields.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"time"

	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A message of gogo's generator.
type message interface{ Marshal() ([]byte, error) }

// Prints one object: its type, its JSON, and its message in base64, with tabs between.
func sample(out io.Writer, root root, random *rand.Rand) {
	value := reflect.New(reflect.TypeOf(root.object))
	fill(value.Elem(), random, 0)
	text, err := json.Marshal(value.Interface())
	must(err)
	// Through JSON again: an empty time behind a pointer is none there.
	value = reflect.New(reflect.TypeOf(root.object))
	must(json.Unmarshal(text, value.Interface()))
	bytes, err := value.Interface().(message).Marshal()
	must(err)
	fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", root.apiVersion, root.kind, text, base64.StdEncoding.EncodeToString(bytes))
}

var texts = []string{"", "a", "b/c", "größe", "two words", "\"quoted\" \\ <tag>", "x.example.io"}
var raws = []string{`{}`, `{"f:spec":{"f:a":{}}}`, `[1,"b",null]`, `"text"`, `12`, `true`, `{"a":{"b":[{}]}}`}
var numbers = []int64{0, 1, -1, 7, 300, 2147483647, -2147483648}

// Deepest nesting that is filled, so that schemas within schemas end.
const deepest = 9

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

func fill(value reflect.Value, random *rand.Rand, depth int) {
	if whole(value, random, depth) {
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(pick(random, texts))
	case reflect.Bool:
		value.SetBool(random.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		value.SetInt(pick(random, numbers))
	case reflect.Float64:
		value.SetFloat(pick(random, []float64{0, 1, -2.5, 1e21, 0.1}))
	case reflect.Pointer:
		if depth < deepest && random.IntN(2) == 0 {
			value.Set(reflect.New(value.Type().Elem()))
			fill(value.Elem(), random, depth+1)
		}
	case reflect.Map:
		if depth < deepest && random.IntN(2) == 0 {
			value.Set(reflect.MakeMap(value.Type()))
			for range 1 + random.IntN(2) {
				item := reflect.New(value.Type().Elem()).Elem()
				fill(item, random, depth+2)
				value.SetMapIndex(reflect.ValueOf(pick(random, texts)).Convert(value.Type().Key()), item)
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			if random.IntN(2) == 0 {
				value.SetBytes([]byte(pick(random, texts)))
			}
			return
		}
		if depth < deepest && random.IntN(2) == 0 {
			value.Set(reflect.MakeSlice(value.Type(), 1+random.IntN(2), 3))
			for index := range value.Len() {
				fill(value.Index(index), random, depth+2)
			}
		}
	case reflect.Struct:
		for _, field := range fields(value.Type()) {
			fill(value.Field(field.index), random, depth+1)
		}
	default:
		panic("cannot fill " + value.Type().String())
	}
}

// Fills values that have a form of their own in JSON.
func whole(value reflect.Value, random *rand.Rand, depth int) bool {
	moment := time.Unix(random.Int64N(1<<31), 0).UTC()
	switch held := value.Addr().Interface().(type) {
	case *meta.Time:
		if random.IntN(4) > 0 {
			*held = meta.NewTime(moment)
		}
	case *meta.MicroTime:
		if random.IntN(4) > 0 {
			*held = meta.NewMicroTime(moment.Add(time.Duration(random.IntN(1e6)) * time.Microsecond))
		}
	case *resource.Quantity:
		*held = resource.MustParse(pick(random, []string{"0", "1", "500m", "3Gi", "12k"}))
	case *runtime.RawExtension:
		held.Raw = []byte(pick(random, raws))
	case *meta.FieldsV1:
		held.Raw = []byte(pick(random, raws[:2]))
	case *extensions.JSON:
		held.Raw = []byte(pick(random, raws))
	case *extensions.JSONSchemaPropsOrBool:
		orSchema(value, "Allows", random, depth)
	case *extensions.JSONSchemaPropsOrArray:
		orSchema(value, "JSONSchemas", random, depth)
	case *extensions.JSONSchemaPropsOrStringArray:
		orSchema(value, "Property", random, depth)
	default:
		return false
	}
	return true
}

// Fills a schema, or what may stand in its place.
func orSchema(value reflect.Value, other string, random *rand.Rand, depth int) {
	schema := value.FieldByName("Schema")
	if depth < deepest && random.IntN(2) == 0 {
		schema.Set(reflect.New(schema.Type().Elem()))
		fill(schema.Elem(), random, depth+1)
		if other == "Allows" {
			value.FieldByName(other).SetBool(true)
		}
		return
	}
	list := value.FieldByName(other)
	if list.Kind() == reflect.Slice {
		// An empty list of them has no form in protobuf.
		list.Set(reflect.MakeSlice(list.Type(), 1, 1))
		fill(list.Index(0), random, depth+2)
		return
	}
	fill(list, random, depth)
}
