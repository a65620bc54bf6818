package main

import (
	"encoding/json"
	"reflect"
	"slices"
)

// object is a Node, a ResourceClass, a ResourceClaim or a PodScheduling: what this driver reads of any of them.
type object struct {
	Metadata struct {
		Name, Namespace, UID, ResourceVersion, CreationTimestamp, DeletionTimestamp string
		Finalizers                                                                  []string
		Labels                                                                      map[string]string
	}
	DriverName                string // of a class, as are the next
	Parameters, ParametersRef json.RawMessage
	Shareable                 bool
	SuitableNodes             *selector
	Limits                    []json.RawMessage
	Spec                      struct {
		ResourceClassName         string // of a claim, as are the next
		Parameters, ParametersRef json.RawMessage
		AllocationMode            string
		Round                     int // of a PodScheduling, as are the next
		Priority                  int
		CandidateNodes            []string
		SelectedNode              string
		Claims                    []struct{ Name, DriverName, ResourceClaimName string }
		Unschedulable             bool // of a Node, as is the next
		Taints                    []taint
	}
	Status struct {
		Allocation *struct { // of a claim, as are the next
			Handles []struct {
				DriverName string
				Data       handle
			}
		}
		ReservedFor           []json.RawMessage
		DeallocationRequested bool
		Conditions            []struct{ Type, Status string }
		Claims                []entry // of a PodScheduling
	}
}

func (o *object) key() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// goes is whether a claim is to be deallocated, and holds whether it has seats.
func (o *object) goes() bool {
	return o.Metadata.DeletionTimestamp != "" || o.Status.DeallocationRequested
}

// accepted is whether the controller has found a claim to be within the limits of its class.
func (o *object) accepted() bool {
	for _, c := range o.Status.Conditions {
		if c.Type == "Accepted" {
			return c.Status == "True"
		}
	}
	return false
}

func (o *object) holds() bool {
	a := o.Status.Allocation
	return a != nil && len(a.Handles) > 0 && a.Handles[0].DriverName == driverName
}

// answers are this driver's own in a PodScheduling.
func (o *object) answers() []entry {
	return slices.DeleteFunc(slices.Clone(o.Status.Claims), func(e entry) bool { return e.DriverName != driverName })
}

// handle is what an allocation records, and all that is needed to count it.
type handle struct {
	Class string `json:"class"`
	Node  string `json:"node"`
	Seats int    `json:"seats"`
}

// entry is the answer for one claim of a pod.
type entry struct {
	Name         string         `json:"name"`
	DriverName   string         `json:"driverName"`
	Round        int            `json:"round"`
	ViableNodes  []string       `json:"viableNodes"`
	Alternatives *alternatives  `json:"alternatives,omitempty"`
	Capacity     map[string]int `json:"capacity,omitempty"`
	Reason       string         `json:"reason,omitempty"`
	WaitingFor   string         `json:"waitingFor,omitempty"`
	Failure      *failure       `json:"failure,omitempty"`
}

// same says whether two answers differ in nothing but their capacity, which is not worth a write.
func same(some, others []entry) bool {
	return slices.EqualFunc(some, others, func(one, other entry) bool {
		one.Capacity, other.Capacity = nil, nil
		return reflect.DeepEqual(one, other)
	})
}

type alternatives struct {
	Nodes []string `json:"nodes"`
}

type failure struct {
	NodeName  string `json:"nodeName"`
	Message   string `json:"message"`
	Permanent bool   `json:"permanent"`
}
