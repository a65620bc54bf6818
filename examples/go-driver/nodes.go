package main

import (
	"slices"
	"strconv"
)

// selector is a class's suitableNodes: one of its terms must match. A class without one suits every node.
type selector struct {
	NodeSelectorTerms []struct{ MatchExpressions, MatchFields []requirement }
}

type requirement struct {
	Key, Operator string
	Values        []string
}

type taint struct{ Key, Effect string }

func (s *selector) matches(node *object) bool {
	if s == nil {
		return true
	}
	for _, term := range s.NodeSelectorTerms {
		fits := len(term.MatchExpressions)+len(term.MatchFields) > 0 // an empty term matches nothing
		for _, r := range term.MatchExpressions {
			value, there := node.Metadata.Labels[r.Key]
			fits = fits && r.holds(value, there)
		}
		for _, r := range term.MatchFields {
			fits = fits && r.holds(node.Metadata.Name, r.Key == "metadata.name")
		}
		if fits {
			return true
		}
	}
	return false
}

func (r requirement) holds(value string, there bool) bool {
	switch r.Operator {
	case "In":
		return there && slices.Contains(r.Values, value)
	case "NotIn":
		return !there || !slices.Contains(r.Values, value)
	case "Exists":
		return there
	case "DoesNotExist":
		return !there
	}
	if !there || len(r.Values) != 1 {
		return false
	}
	has, wrong := strconv.ParseInt(value, 10, 64)
	limit, wrongToo := strconv.ParseInt(r.Values[0], 10, 64)
	return wrong == nil && wrongToo == nil && (r.Operator == "Gt" && has > limit || r.Operator == "Lt" && has < limit)
}

// open is whether ordinary pods may go to the node.
func (o *object) open() bool {
	return !o.Spec.Unschedulable && !slices.ContainsFunc(o.Spec.Taints, func(t taint) bool {
		return t.Effect == "NoSchedule" || t.Effect == "NoExecute"
	})
}
