package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// parse reads the parameters of a class (seats on each node) or of a claim (seats wanted, one if it does not say).
// A driver that reads no objects has to refuse parametersRef: without a word it would allocate by what nobody wrote.
func parse(raw, reference json.RawMessage, whose string, required bool) (int, error) {
	if len(reference) > 0 {
		return 0, fmt.Errorf("parametersRef of %s: this driver reads no objects: use parameters", whose)
	}
	var found struct{ Seats *int }
	if len(raw) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&found); err != nil {
			return 0, fmt.Errorf("parameters of %s: %s: %w (known parameters: seats)", whose, raw, err)
		}
	}
	switch {
	case found.Seats == nil && required:
		return 0, fmt.Errorf("parameters of %s: seats is missing", whose)
	case found.Seats == nil:
		return 1, nil
	case *found.Seats < 1:
		return 0, fmt.Errorf("parameters of %s: seats=%d: must be 1 or more", whose, *found.Seats)
	}
	return *found.Seats, nil
}

// demand is what a pod's claims want that have nothing yet. Every class has so many seats there on each node.
type demand struct {
	handles []handle
	there   map[string]int
}

// taken counts the seats that are held, by class and node.
type taken map[[2]string]int

func (t taken) add(h handle) { t[[2]string{h.Class, h.Node}] += h.Seats }

// lacking says why a node will not do for all claims together; it is empty for a node that will.
func (t taken) lacking(d demand, node string) string {
	wanted := map[string]int{}
	for _, h := range d.handles {
		wanted[h.Class] += h.Seats
	}
	for _, h := range d.handles {
		free := max(0, d.there[h.Class]-t[[2]string{h.Class, node}])
		if free < wanted[h.Class] {
			return fmt.Sprintf("%d of %d seats of class %s free, %d wanted", free, d.there[h.Class], h.Class, wanted[h.Class])
		}
	}
	return ""
}

// judge is the answer, which is the same for all claims of a pod.
func (t taken) judge(d demand, nodes []string) entry {
	answer := entry{ViableNodes: []string{}}
	var reasons []string
	for _, node := range nodes {
		if lacking := t.lacking(d, node); lacking != "" {
			reasons = append(reasons, node+": "+lacking)
		} else {
			answer.ViableNodes = append(answer.ViableNodes, node)
			t.count(d, node, &answer)
		}
	}
	answer.Reason = short(strings.Join(reasons, "; "))
	if (taken{}).lacking(d, "") != "" { // not even where every seat is free
		answer.Alternatives = &alternatives{[]string{}}
	}
	return answer
}

// most is how many nodes an answer has a capacity for, and how many pods that may be at most.
const most = 16

// count notes for how many such pods a viable node has enough seats: the controller sends so many without a question.
func (t taken) count(d demand, node string, answer *entry) {
	wanted, pods := map[string]int{}, most
	for _, h := range d.handles {
		wanted[h.Class] += h.Seats
	}
	for class, seats := range wanted {
		if seats < 1 {
			return // parameters that are refused
		}
		pods = min(pods, (d.there[class]-t[[2]string{class, node}])/seats)
	}
	if len(wanted) == 0 || len(answer.Capacity) == most {
		return
	}
	if answer.Capacity == nil {
		answer.Capacity = map[string]int{}
	}
	answer.Capacity[node] = pods
}

// short is what the API has room for in a failure's message: whole characters, or what is read back is not what was
// written, and would be written again.
func short(words string) string { return strings.ToValidUTF8(words[:min(len(words), 1024)], "") }
