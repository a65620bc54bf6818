package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParametersAreUnderstoodOrNamed(t *testing.T) {
	for _, c := range []struct {
		raw      string
		required bool
		seats    int
		wrong    string
	}{
		{`{"seats": 4}`, true, 4, ""},
		{`{}`, false, 1, ""},
		{``, false, 1, ""},
		{`{}`, true, 0, "parameters of class desks: seats is missing"},
		{`{"seats": 0}`, false, 0, "parameters of class desks: seats=0: must be 1 or more"},
		{`{"chairs": 2}`, true, 0, `parameters of class desks: {"chairs": 2}: json: unknown field "chairs" (known parameters: seats)`},
	} {
		seats, err := parse(json.RawMessage(c.raw), nil, "class desks", c.required)
		words := ""
		if err != nil {
			words = err.Error()
		}
		if seats != c.seats || words != c.wrong {
			t.Errorf("parse(%s): %d, %q, not %d, %q", c.raw, seats, words, c.seats, c.wrong)
		}
	}
}

func TestAReferenceIsRefusedRatherThanIgnored(t *testing.T) {
	if _, err := parse(nil, json.RawMessage(`{"kind": "ConfigMap", "name": "size"}`), "claim a/b", false); err == nil {
		t.Error("a claim was understood whose parameters are elsewhere")
	}
}

func TestALongReasonEndsWithAWholeCharacter(t *testing.T) {
	for _, c := range []struct {
		words  string
		length int
	}{
		{"no free seat", 12},
		{strings.Repeat("a", 2000), 1024},
		{"a" + strings.Repeat("é", 1000), 1023},
	} {
		if cut := short(c.words); len(cut) != c.length || !utf8.ValidString(cut) {
			t.Errorf("%d bytes of %.20q..., not %d", len(cut), cut, c.length)
		}
	}
}

func wants(seats ...int) demand {
	d := demand{there: map[string]int{"desks": 3}}
	for _, n := range seats {
		d.handles = append(d.handles, handle{Class: "desks", Seats: n})
	}
	return d
}

func TestClaimsOfAPodAreJudgedTogether(t *testing.T) {
	used := taken{}
	used.add(handle{"desks", "a", 1})
	used.add(handle{"chairs", "b", 3})
	answer := used.judge(wants(1, 2), []string{"a", "b"})
	want := entry{ViableNodes: []string{"b"}, Capacity: map[string]int{"b": 1}, Reason: "a: 2 of 3 seats of class desks free, 3 wanted"}
	if !reflect.DeepEqual(answer, want) {
		t.Errorf("%+v, not %+v", answer, want)
	}
}

func TestWhatNoNodeHasIsNowhereElseEither(t *testing.T) {
	answer := taken{}.judge(wants(4), []string{"a"})
	if len(answer.ViableNodes) != 0 || answer.Alternatives == nil || len(answer.Alternatives.Nodes) != 0 {
		t.Errorf("%+v has viable nodes or alternatives", answer)
	}
}

func TestAClassWithFewerSeatsThanAreTakenHasNoneFree(t *testing.T) {
	used := taken{}
	used.add(handle{"desks", "a", 5})
	if words := used.lacking(wants(1), "a"); words != "0 of 3 seats of class desks free, 1 wanted" {
		t.Error(words)
	}
}

func TestTheNewerVersionOfAnObjectStays(t *testing.T) {
	version := func(number string) *object {
		o := &object{}
		o.Metadata.Name, o.Metadata.ResourceVersion = "one", number
		return o
	}
	s := &store{items: map[string]*object{}}
	s.see(version("99"), false)
	s.see(version("100"), false)
	s.see(version("99"), false)
	s.see(version("99"), true)
	if known := s.items["/one"]; known == nil || known.Metadata.ResourceVersion != "100" {
		t.Errorf("%+v is known", known)
	}
	if s.see(version("101"), true); len(s.items) != 0 {
		t.Error("what was deleted is known")
	}
}

func TestAnAnswerSaysForHowManyPodsThereIsEnough(t *testing.T) {
	wanted := demand{[]handle{{Class: "desk", Seats: 2}, {Class: "desk", Seats: 1}}, map[string]int{"desk": 7}}
	used := taken{}
	used.add(handle{Class: "desk", Node: "b", Seats: 2})
	used.add(handle{Class: "desk", Node: "c", Seats: 5})
	answer := used.judge(wanted, []string{"a", "b", "c"})
	if want := map[string]int{"a": 2, "b": 1}; !reflect.DeepEqual(answer.Capacity, want) {
		t.Errorf("capacity %v, want %v", answer.Capacity, want)
	}
	if answer := used.judge(demand{}, []string{"a"}); answer.Capacity != nil {
		t.Errorf("capacity %v of a pod that has all it wants", answer.Capacity)
	}
	nothing := demand{[]handle{{Class: "desk"}}, map[string]int{"desk": 7}}
	if answer := used.judge(nothing, []string{"a"}); answer.Capacity != nil {
		t.Errorf("capacity %v of a pod whose parameters are refused", answer.Capacity)
	}
}

func TestAnAnswerIsNotWrittenAgainForItsCapacity(t *testing.T) {
	one := []entry{{Name: "seat", Round: 1, Capacity: map[string]int{"a": 2}}}
	if !same(one, []entry{{Name: "seat", Round: 1}}) || same(one, []entry{{Name: "seat", Round: 2}}) {
		t.Error("answers are compared by their capacity, or not at all")
	}
}
