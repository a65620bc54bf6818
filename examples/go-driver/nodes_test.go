package main

import (
	"encoding/json"
	"slices"
	"testing"
)

func node(t *testing.T, content string) *object {
	found := &object{}
	if err := json.Unmarshal([]byte(content), found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestASelectorChoosesNodesByNameAndLabels(t *testing.T) {
	one := node(t, `{"metadata": {"name": "one", "labels": {"zone": "a", "rank": "7"}}}`)
	for _, c := range []struct {
		terms string
		want  bool
	}{
		{`[{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]}]`, true},
		{`[{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["one"]}]}]`, false},
		{`[{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]}]`, true},
		{`[{"matchExpressions": [{"key": "zone", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}]}]`, false},
		{`[{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]`, true},
		{`[{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]`, true},
		{`[{"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["6"]}]}]`, true},
		{`[{"matchExpressions": [{"key": "rank", "operator": "Lt", "values": ["7"]}]}]`, false},
		{`[{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["1"]}]}]`, false},
		{`[{}]`, false},
	} {
		class := &object{}
		if err := json.Unmarshal([]byte(`{"suitableNodes": {"nodeSelectorTerms": `+c.terms+`}}`), class); err != nil {
			t.Fatal(err)
		}
		if class.SuitableNodes.matches(one) != c.want {
			t.Errorf("%s: not %v", c.terms, c.want)
		}
	}
	if !(&object{}).SuitableNodes.matches(one) {
		t.Error("a class without suitableNodes does not suit every node")
	}
}

func TestNodesThatPodsCannotGoToAreNotOpen(t *testing.T) {
	for content, want := range map[string]bool{
		`{}`:                                           false,
		`{"unschedulable": true}`:                      true,
		`{"taints": [{"effect": "NoSchedule"}]}`:       true,
		`{"taints": [{"effect": "NoExecute"}]}`:        true,
		`{"taints": [{"effect": "PreferNoSchedule"}]}`: false,
	} {
		if closed := !node(t, `{"spec": `+content+`}`).open(); closed != want {
			t.Errorf("%s: closed is %v", content, closed)
		}
	}
}

func TestNodesThatAreNoCandidatesAreProposedIfTheyHaveEnough(t *testing.T) {
	d := &driver{nodes: &store{items: map[string]*object{}}}
	for _, name := range []string{"a", "b", "c"} {
		node := &object{}
		node.Metadata.Name = name
		d.nodes.see(node, false)
	}
	used := taken{}
	used.add(handle{Class: "desks", Node: "b", Seats: 3})
	if found := d.others(wants(1), []string{"a"}, used); found == nil || !slices.Equal(found.Nodes, []string{"c"}) {
		t.Errorf("%v is proposed, not c", found)
	}
	if found := d.others(wants(1), []string{"a", "c"}, used); found != nil {
		t.Errorf("%v is proposed, though no other node has a free seat", found)
	}
}
