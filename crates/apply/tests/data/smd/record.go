// Writes down what structured-merge-diff does in its own tests: belongs into its folder internal/fixture, see record.sh.
//
// A line is a case: the schemas of its versions as definitions have them, and each operation with the object and the managers after it.

package fixture

import (
	"encoding/json"
	"os"
	"reflect"
	"runtime"
	"strings"

	"go.yaml.in/yaml/v2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

type object = map[string]interface{}

func record(tc TestCase, parser Parser, converter merge.Converter) {
	switch converter.(type) {
	case *dummyConverter, *Retyping:
	default:
		// The registry decides what a version shows.
		return
	}
	if tc.IgnoreFilter != nil || tc.IgnoredFields != nil {
		// And what a subresource cannot change.
		return
	}
	r := recording{schemas: []object{}}
	steps := []object{}
	updater := merge.UpdaterBuilder{Converter: converter, ReturnInputOnNoop: tc.ReturnInputOnNoop}
	state := &State{Updater: updater.BuildUpdater(), Parser: parser}
	for _, op := range tc.Ops {
		steps = append(steps, r.step(state, op))
	}
	line := object{"name": caller(), "schemas": r.schemas, "steps": steps}
	file, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err := json.NewEncoder(file).Encode(line); err != nil {
		panic(err)
	}
}

// Retyping reads an object as each version's schema has it.
type Retyping struct{ Parser Parser }

// Convert is of merge.Converter.
func (r *Retyping) Convert(one *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	kind := r.Parser.Type(string(version))
	return typed.AsTyped(one.AsValue(), kind.Schema, kind.TypeRef, typed.AllowDuplicates)
}

// IsMissingVersionError is of merge.Converter.
func (r *Retyping) IsMissingVersionError(error) bool { return false }

// Each schema once.
type recording struct{ schemas []object }

func (r *recording) schema(one object) int {
	for place, known := range r.schemas {
		if reflect.DeepEqual(known, one) {
			return place
		}
	}
	r.schemas = append(r.schemas, one)
	return len(r.schemas) - 1
}

// The test that asks.
func caller() string {
	for depth := 2; ; depth++ {
		pc, _, _, ok := runtime.Caller(depth)
		if !ok {
			return "?"
		}
		name := runtime.FuncForPC(pc).Name()
		if at := strings.Index(name, "merge_test.Test"); at >= 0 {
			return strings.Split(name[at:], ".")[1]
		}
	}
}

func (r *recording) step(state *State, op Operation) object {
	out := object{}
	fields := reflect.ValueOf(op)
	if fields.Kind() == reflect.Pointer {
		fields = fields.Elem()
	}
	out["do"] = fields.Type().Name()
	var err error
	if change, ok := op.(ChangeParser); ok {
		err = op.run(state)
		names := object{}
		for _, name := range change.Parser.TypeNames() {
			names[name] = r.schema(definition(change.Parser.Schema, schema.TypeRef{NamedType: &name}, 0))
		}
		out["schemas"] = names
	} else {
		version := fields.FieldByName("APIVersion").Interface().(fieldpath.APIVersion)
		manager := fields.FieldByName("Manager").String()
		out["version"], out["manager"] = version, manager
		kind := state.Parser.Type(string(version))
		out["schema"] = r.schema(definition(*kind.Schema, kind.TypeRef, 0))
		var sent *typed.TypedValue
		if given := fields.FieldByName("Object"); given.Kind() == reflect.String {
			text := FixTabsOrDie(typed.YAMLObject(given.String()))
			var plain interface{}
			bad := yaml.Unmarshal([]byte(text), &plain)
			if bad != nil {
				panic(bad)
			}
			out["object"] = convertMapAnyToMapString(plain)
			var options []typed.ValidationOptions
			if _, update := op.(Update); update {
				options = append(options, typed.AllowDuplicates)
			}
			sent, err = kind.FromYAML(text, options...)
		} else {
			sent = given.Interface().(*typed.TypedValue)
			out["object"] = plainly(sent)
		}
		if err == nil {
			switch op.(type) {
			case Apply, ApplyObject:
				err = state.ApplyObject(sent, version, manager, false)
			case ForceApply, ForceApplyObject:
				err = state.ApplyObject(sent, version, manager, true)
			case Update, UpdateObject:
				err = state.UpdateObject(sent, version, manager)
			default:
				// What somebody read of their own fields, changed, and applies again.
				if state.Live != nil {
					own := fieldpath.NewSet()
					if set := state.Managers[manager]; set != nil {
						own = set.Set().Leaves()
					}
					sent, err = state.Live.ExtractItems(own).Merge(sent)
				}
				if err == nil {
					out["do"], out["object"] = "ForceApply", plainly(sent)
					err = state.ApplyObject(sent, version, manager, true)
				}
			}
		}
	}
	if conflicts, ok := err.(merge.Conflicts); ok {
		found := []string{}
		for _, conflict := range conflicts {
			found = append(found, conflict.Manager+" "+conflict.Path.String())
		}
		out["conflicts"] = found
	} else if err != nil {
		out["error"] = err.Error()
	}
	if state.Live != nil {
		out["live"] = plainly(state.Live)
	}
	managers := object{}
	for name, set := range state.Managers {
		text, bad := set.Set().ToJSON()
		if bad != nil {
			panic(bad)
		}
		managers[name] = object{"version": set.APIVersion(), "applied": set.Applied(), "fields": json.RawMessage(text)}
	}
	out["managers"] = managers
	return out
}

func plainly(one *typed.TypedValue) interface{} {
	return convertMapAnyToMapString(one.AsValue().Unstructured())
}

// A type as a definition would say it.
func definition(all schema.Schema, of schema.TypeRef, depth int) object {
	free := object{"x-kubernetes-preserve-unknown-fields": true}
	atom, ok := all.Resolve(of)
	if !ok || depth > 8 {
		return free
	}
	kinds := 0
	for _, there := range []bool{atom.Scalar != nil, atom.List != nil, atom.Map != nil} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return free
	case atom.Scalar != nil:
		switch *atom.Scalar {
		case schema.Numeric:
			return object{"type": "number"}
		case schema.String:
			return object{"type": "string"}
		case schema.Boolean:
			return object{"type": "boolean"}
		}
		return free
	case atom.List != nil:
		out := object{"type": "array", "items": definition(all, atom.List.ElementType, depth+1), "x-kubernetes-list-type": "atomic"}
		if atom.List.ElementRelationship == schema.Associative {
			out["x-kubernetes-list-type"] = "set"
			if len(atom.List.Keys) > 0 {
				out["x-kubernetes-list-type"], out["x-kubernetes-list-map-keys"] = "map", atom.List.Keys
			}
		}
		return out
	}
	out := object{"type": "object"}
	if atom.Map.ElementRelationship == schema.Atomic {
		out["x-kubernetes-map-type"] = "atomic"
	}
	properties := object{}
	for _, field := range atom.Map.Fields {
		property := definition(all, field.Type, depth+1)
		if field.Default != nil {
			property["default"] = field.Default
		}
		properties[field.Name] = property
	}
	if len(properties) > 0 {
		out["properties"] = properties
	}
	if ref := atom.Map.ElementType; ref.NamedType != nil || !reflect.DeepEqual(ref.Inlined, schema.Atom{}) {
		out["additionalProperties"] = definition(all, ref, depth+1)
	}
	return out
}
