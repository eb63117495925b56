// Writes of managers that know little of each other: belongs into the folder merge of structured-merge-diff, see record.sh.

package merge_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	. "sigs.k8s.io/structured-merge-diff/v6/internal/fixture"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Versions v1 and v2 are alike; in v3 some lists and maps are one value that have parts in the others.
func kind(version, list, mapping string) string {
	return fmt.Sprintf(`
- name: %s
  map:
    fields:
    - {name: size, type: {scalar: numeric}}
    - {name: colour, type: {scalar: string}}
    - name: box
      type: {map: {elementRelationship: %s, fields: [{name: width, type: {scalar: numeric}}, {name: height, type: {scalar: numeric}}]}}
    - {name: sizes, type: {map: {elementType: {scalar: numeric}}}}
    - {name: ref, type: {map: {elementRelationship: atomic, elementType: {scalar: string}}}}
    - {name: tags, type: {list: {elementRelationship: %s, elementType: {scalar: string}}}}
    - {name: steps, type: {list: {elementRelationship: atomic, elementType: {scalar: string}}}}
    - name: ports
      type:
        list:
          elementRelationship: associative
          keys: [port, protocol]
          elementType: {map: {fields: [{name: port, type: {scalar: numeric}}, {name: protocol, type: {scalar: string}, default: TCP}, {name: note, type: {scalar: string}}, {name: more, type: {map: {elementType: {scalar: string}}}}]}}
`, version, mapping, list)
}

type draw struct{ *rand.Rand }

func (d draw) some(into map[string]interface{}, name string, value func() interface{}) {
	switch n := d.Intn(20); {
	case n < 7:
		into[name] = value()
	case n == 7:
		into[name] = nil
	}
}

func (d draw) word() interface{}   { return []string{"x", "y", "z"}[d.Intn(3)] }
func (d draw) number() interface{} { return d.Intn(3) }

func (d draw) texts(repeats bool) interface{} {
	out := []interface{}{}
	for _, at := range d.Perm(3)[:d.Intn(4)] {
		out = append(out, []string{"x", "y", "z"}[at])
	}
	if repeats && len(out) > 0 && d.Intn(3) == 0 {
		out = append(out, out[0])
	}
	return out
}

func (d draw) entries(value func() interface{}) interface{} {
	out := map[string]interface{}{}
	for _, name := range []string{"a", "b", "c"} {
		if d.Intn(3) == 0 {
			out[name] = value()
		}
	}
	return out
}

func (d draw) ports(repeats bool) interface{} {
	out := []interface{}{}
	for _, at := range d.Perm(4)[:d.Intn(4)] {
		item := map[string]interface{}{"port": at / 2}
		if at%2 == 1 {
			item["protocol"] = "UDP"
		} else if d.Intn(2) == 0 {
			item["protocol"] = "TCP"
		}
		d.some(item, "note", d.word)
		d.some(item, "more", func() interface{} { return d.entries(d.word) })
		out = append(out, item)
	}
	if repeats && len(out) > 0 && d.Intn(5) == 0 {
		out = append(out, out[0])
	}
	return out
}

// What does not fit the schema: of several errors the library tells some, in the order of Go's maps.
func (d draw) spoil(into map[string]interface{}) {
	type list = []interface{}
	type fields = map[string]interface{}
	wrong := []struct {
		name  string
		value interface{}
	}{
		{"nothing", 1}, {"size", "1"}, {"size", true}, {"size", list{}}, {"colour", 7}, {"colour", fields{}},
		{"box", list{}}, {"box", "x"}, {"box", fields{"depth": 1}}, {"box", fields{"width": "1"}},
		{"sizes", fields{"a": "x"}}, {"sizes", 7}, {"ref", fields{"a": 7}}, {"ref", list{"a"}},
		{"tags", "x"}, {"tags", list{7}}, {"tags", list{fields{}}}, {"tags", list{nil}}, {"tags", list{"x", "x"}},
		{"steps", list{7}}, {"steps", fields{"a": "b"}},
		{"ports", fields{}}, {"ports", list{7}}, {"ports", list{nil}}, {"ports", list{fields{"note": "x"}}},
		{"ports", list{fields{"port": 1}, fields{"port": 1, "protocol": "TCP"}}}, {"ports", list{fields{"port": "1"}}},
		{"ports", list{fields{"port": 1, "note": 7, "other": 1}}}, {"ports", list{fields{"port": 1, "more": fields{"a": 7}}}},
	}
	one := wrong[d.Intn(len(wrong))]
	into[one.name] = one.value
}

func (d draw) object(repeats bool) typed.YAMLObject {
	out := map[string]interface{}{}
	d.some(out, "size", d.number)
	d.some(out, "colour", d.word)
	d.some(out, "box", func() interface{} {
		box := map[string]interface{}{}
		d.some(box, "width", d.number)
		d.some(box, "height", d.number)
		return box
	})
	d.some(out, "sizes", func() interface{} { return d.entries(d.number) })
	d.some(out, "ref", func() interface{} { return d.entries(d.word) })
	d.some(out, "tags", func() interface{} { return d.texts(repeats) })
	d.some(out, "steps", func() interface{} { return d.texts(false) })
	d.some(out, "ports", func() interface{} { return d.ports(repeats) })
	if !repeats && d.Intn(5) == 0 {
		d.spoil(out)
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return typed.YAMLObject(text)
}

func TestRandomWrites(t *testing.T) {
	parser, err := typed.NewParser(typed.YAMLObject("types:" + kind("v1", "associative", "separable") + kind("v2", "associative", "separable") + kind("v3", "atomic", "atomic")))
	if err != nil {
		t.Fatal(err)
	}
	count, _ := strconv.Atoi(os.Getenv("RANDOM_CASES"))
	for seed := 0; seed < count; seed++ {
		d := draw{rand.New(rand.NewSource(int64(seed)))}
		versions := []string{"v1", "v2", "v1", "v3"}[:1+d.Intn(4)]
		ops := []Operation{}
		for i := 2 + d.Intn(6); i > 0; i-- {
			version := versions[d.Intn(len(versions))]
			api := fieldpath.APIVersion(version)
			number := d.Intn(3)
			// Who applies and who updates is not the same manager, nor who updates through two versions.
			applier, updater := fmt.Sprintf("a%d", number), fmt.Sprintf("u%d-%s", number, version)
			switch d.Intn(4) {
			case 0:
				ops = append(ops, Update{Manager: updater, APIVersion: api, Object: d.object(true)})
			case 1:
				ops = append(ops, ForceApply{Manager: applier, APIVersion: api, Object: d.object(false)})
			default:
				ops = append(ops, Apply{Manager: applier, APIVersion: api, Object: d.object(false)})
			}
		}
		// What comes of it is what is recorded: conflicts are no failure.
		_ = TestCase{Ops: ops}.TestWithConverter(parser, &Retyping{Parser: parser})
	}
}
