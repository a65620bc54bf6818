// A driver that uses nothing of Parley but its objects: seats.example.com gives pods seats, of which a class has so
// many on each node. docs/driver-protocol.md says what a driver has to do; the numbers below are its sections.
//
// All state is in the API, and after each change everything is looked at again: a restart is no special case.
package main

import (
	"cmp"
	"errors"
	"flag"
	"log"
	"maps"
	"net/http"
	"slices"
	"time"
)

const (
	driverName = "seats.example.com"
	finalizer  = driverName + "/deletion-protection"
)

type driver struct {
	api                                 *api
	classes, claims, schedulings, nodes *store
	answered                            time.Time // when a pod that waits was last answered anew
	again                               bool      // look again in a second, though nothing may have changed
	since                               time.Time // when it began to take over
	unsure                              time.Time // when an allocation last got no answer
	alone                               bool      // no allocation that was sent before can be recorded any more
}

func main() {
	server := flag.String("server", "", "the API server's address, plain, such as that of kubectl proxy; default: as in a pod")
	account := flag.String("account", "/var/run/secrets/kubernetes.io/serviceaccount", "directory of the pod's service account")
	flag.Parse()
	at, err := &api{server: *server, http: &http.Client{}}, error(nil)
	if *server == "" {
		if at, err = serviceAccount(*account); err != nil {
			log.Fatal(err)
		}
	}
	kind := func(plural, selector string) *store {
		return &store{group, plural, selector, map[string]*object{}, false}
	}
	d := &driver{api: at, classes: kind("resourceclasses", ""), claims: kind("resourceclaims", "")}
	d.schedulings = kind("podschedulings", "parley.dev/drivers=standalone")
	d.nodes = &store{"/api/v1", "nodes", "", map[string]*object{}, false}
	d.run()
}

// all are the kinds that are watched.
func (d *driver) all() []*store { return []*store{d.classes, d.claims, d.schedulings, d.nodes} }

func (d *driver) run() {
	changes := make(chan func(), 1000)
	for _, kind := range d.all() {
		go d.api.follow(kind, changes)
	}
	for later := (<-chan time.Time)(nil); ; {
		select {
		case change := <-changes:
			change()
		case <-later:
		}
		for len(changes) > 0 {
			(<-changes)()
		}
		unlisted := func(s *store) bool { return !s.listed }
		if d.again = false; !slices.ContainsFunc(d.all(), unlisted) {
			d.lookAtAll()
		}
		if later = nil; d.again {
			later = time.After(time.Second)
		}
	}
}

// takeOver changes every claim that was begun with, by starting over: the network may deliver an allocation late that
// a process before this one sent, or this one without getting an answer, and the API server refuses it then. A claim
// that can't be changed may have its allocation already, so it is read. It is left after a minute.
func (d *driver) takeOver() bool {
	if d.since.IsZero() {
		d.since = time.Now()
	}
	done := true
	for _, c := range d.claims.items {
		if c.Status.Allocation == nil && slices.Contains(c.Metadata.Finalizers, finalizer) {
			err := d.unprotect(c)
			if err != nil {
				err = errors.Join(err, d.refresh(c))
			}
			d.note(err)
			done = done && err == nil
		}
	}
	if done = done || time.Since(d.since) > time.Minute; done {
		d.since = time.Time{}
	}
	return done
}

func (d *driver) lookAtAll() {
	if time.Since(d.unsure) < time.Second { // else a server that fails is asked without a pause
		d.again = true
		return
	}
	if d.alone = d.alone || d.takeOver(); !d.alone {
		return
	}
	used := taken{}
	for _, c := range d.claims.items {
		if d.note(d.takeBack(c)); c.holds() {
			used.add(c.Status.Allocation.Handles[0].Data)
		}
	}
	for _, c := range d.claims.items {
		d.note(d.allocateAtOnce(c, used))
	}
	inLine := func(one, other *object) int {
		first := cmp.Compare(other.Spec.Priority, one.Spec.Priority)
		age := cmp.Compare(one.Metadata.CreationTimestamp, other.Metadata.CreationTimestamp)
		return cmp.Or(first, age, cmp.Compare(one.key(), other.key()))
	}
	for _, s := range slices.SortedFunc(maps.Values(d.schedulings.items), inLine) {
		if p := d.pod(s); len(p.entries) > 0 && s.Spec.SelectedNode != "" {
			d.note(d.allocate(s, p, used))
		} else if len(p.entries) > 0 {
			d.note(d.answer(s, p, used, nil))
		}
	}
}

func (d *driver) note(err error) {
	if err != nil {
		log.Print(err)
		d.again = true
	}
}

// pod is what one pod wants of this driver.
type pod struct {
	entries []string  // its claims of this driver
	pending []*object // those of them that have nothing yet,
	demand            // and what these want
	wrong   error
}

// pod has no entries as long as one of its claims, or its class, is unknown or goes.
func (d *driver) pod(s *object) pod {
	p := pod{demand: demand{there: map[string]int{}}}
	for _, asked := range s.Spec.Claims {
		if asked.DriverName != driverName {
			continue
		}
		c := d.claims.items[s.Metadata.Namespace+"/"+asked.ResourceClaimName]
		if c == nil || c.goes() || d.classes.items["/"+c.Spec.ResourceClassName] == nil {
			return pod{}
		}
		p.entries = append(p.entries, asked.Name)
		if c.Status.Allocation == nil {
			p.add(c, d.classes.items["/"+c.Spec.ResourceClassName])
		}
	}
	return p
}

func (p *pod) add(c, class *object) {
	there, wrong := parse(class.Parameters, class.ParametersRef, "class "+class.Metadata.Name, true)
	seats, wrongToo := parse(c.Spec.Parameters, c.Spec.ParametersRef, "claim "+c.key(), false)
	p.pending = append(p.pending, c)
	p.handles = append(p.handles, handle{Class: class.Metadata.Name, Seats: seats})
	p.there[class.Metadata.Name] = there
	p.wrong = errors.Join(p.wrong, wrong, wrongToo)
}

// 1. Answer, and keep the answer up to date.
func (d *driver) answer(s *object, p pod, used taken, failed *failure) error {
	verdict := used.judge(p.demand, s.Spec.CandidateNodes)
	if len(verdict.ViableNodes) == 0 && verdict.Alternatives == nil {
		verdict.Alternatives = d.others(p.demand, s.Spec.CandidateNodes, used)
	}
	if p.wrong != nil {
		verdict = entry{ViableNodes: []string{}, Alternatives: &alternatives{[]string{}}, Reason: short(p.wrong.Error()), WaitingFor: "ParametersInvalid"}
	}
	var answers []entry
	for _, name := range p.entries {
		verdict.Name, verdict.DriverName, verdict.Round, verdict.Failure = name, driverName, s.Spec.Round, failed
		answers = append(answers, verdict)
	}
	before := s.answers()
	if same(before, answers) {
		return nil
	}
	waits := len(before) > 0 && before[0].Round == s.Spec.Round && len(before[0].ViableNodes) == 0
	if waits && len(verdict.ViableNodes) > 0 {
		if time.Since(d.answered) < time.Second { // one after the other, or all would run for the same seat
			d.again = true
			return nil
		}
		d.answered = time.Now()
	}
	body := map[string]any{
		"apiVersion": "parley.dev/v1alpha1", "kind": "PodScheduling",
		// With the UID, a PodScheduling that is gone is not made anew.
		"metadata": map[string]any{"name": s.Metadata.Name, "uid": s.Metadata.UID},
		"status":   map[string]any{"claims": answers},
	}
	path := d.schedulings.path(s) + "?force=true&fieldManager=" + driverName
	return d.write(s, path, apply, body)
}

// others are nodes with enough seats that are not candidates, or not any more; nil if there are none. The controller
// asks about nodes of earlier rounds again if they are named.
func (d *driver) others(wanted demand, candidates []string, used taken) *alternatives {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(d.nodes.items)) {
		node := d.nodes.items[key].Metadata.Name
		if len(found) < 32 && !slices.Contains(candidates, node) && used.lacking(wanted, node) == "" {
			found = append(found, node)
		}
	}
	if found == nil {
		return nil
	}
	return &alternatives{found}
}

// 2. Allocate all that the pod wants, or nothing.
func (d *driver) allocate(s *object, p pod, used taken) error {
	node := s.Spec.SelectedNode
	failed := func(e entry) bool {
		return e.Failure != nil && e.Failure.NodeName == node && e.Round == s.Spec.Round
	}
	if len(p.pending) == 0 || slices.ContainsFunc(s.answers(), failed) {
		return nil
	}
	if p.wrong != nil {
		return d.answer(s, p, used, &failure{node, short(p.wrong.Error()), true})
	}
	if lacking := used.lacking(p.demand, node); lacking != "" {
		return d.answer(s, p, used, &failure{node, lacking, false})
	}
	// The watch may be behind: it brought that a claim was deallocated, but not yet that the node is no longer selected.
	now := &object{}
	if err := d.api.do("GET", d.schedulings.path(s), "", nil, now); err != nil || now.Spec.SelectedNode != node {
		return err
	}
	for i, c := range p.pending {
		h := p.handles[i]
		h.Node = node
		used.add(h)
		if err := d.hold(c, h); err != nil {
			return err // the next look goes on with what is left
		}
	}
	return nil
}

// allocateAtOnce allocates an immediate claim, without a pod: on the first node by name that will do.
func (d *driver) allocateAtOnce(c *object, used taken) error {
	class := d.classes.items["/"+c.Spec.ResourceClassName]
	pending := c.Spec.AllocationMode == "Immediate" && c.Status.Allocation == nil && !c.goes()
	if !pending || class == nil || class.DriverName != driverName || len(class.Limits) > 0 && !c.accepted() {
		return nil
	}
	p := pod{demand: demand{there: map[string]int{}}}
	if p.add(c, class); p.wrong != nil {
		return nil // nothing will do; a change of the class is looked at like any other
	}
	for _, node := range slices.Sorted(maps.Keys(d.nodes.items)) {
		o := d.nodes.items[node]
		if h := p.handles[0]; o.open() && class.SuitableNodes.matches(o) && used.lacking(p.demand, o.Metadata.Name) == "" {
			h.Node = o.Metadata.Name
			used.add(h)
			return d.hold(c, h)
		}
	}
	return nil
}

func (d *driver) hold(c *object, h handle) error {
	if !slices.Contains(c.Metadata.Finalizers, finalizer) {
		if err := d.setFinalizers(c, append(slices.Clone(c.Metadata.Finalizers), finalizer)); err != nil {
			return err
		}
	}
	node := map[string]any{"key": "metadata.name", "operator": "In", "values": []string{h.Node}}
	term := map[string]any{"matchFields": []any{node}}
	allocation := map[string]any{
		"handles":          []any{map[string]any{"driverName": driverName, "data": h}},
		"availableOnNodes": map[string]any{"nodeSelectorTerms": []any{term}},
	}
	if d.classes.items["/"+h.Class].Shareable {
		allocation["shareable"] = true
	}
	err := d.setStatus(c, map[string]any{"driverName": driverName, "allocation": allocation})
	if err != nil && !errors.Is(err, refused) {
		d.alone, d.unsure = false, time.Now() // it may be recorded, or still be: nobody else gets these seats before that is known
	}
	return err
}

// 3. Deallocate. A claim that has nothing of ours, and that no pod is about to get from us, needs no protection either.
func (d *driver) takeBack(c *object) error {
	unwanted := c.goes() && len(c.Status.ReservedFor) == 0
	anothers := c.Status.Allocation != nil && !c.holds()
	idle := anothers || c.Status.Allocation == nil && !d.selected(c)
	if !slices.Contains(c.Metadata.Finalizers, finalizer) || !unwanted && !idle {
		return nil
	}
	if c.holds() {
		cleared := map[string]any{"driverName": nil, "allocation": nil, "deallocationRequested": nil}
		if err := d.setStatus(c, cleared); err != nil {
			return err
		}
	}
	return d.unprotect(c)
}

func (d *driver) unprotect(c *object) error {
	others := slices.DeleteFunc(slices.Clone(c.Metadata.Finalizers), func(f string) bool { return f == finalizer })
	return d.setFinalizers(c, others)
}

func (d *driver) selected(c *object) bool {
	for _, s := range d.schedulings.items {
		for _, asked := range s.Spec.Claims {
			named := asked.DriverName == driverName && s.Metadata.Namespace+"/"+asked.ResourceClaimName == c.key()
			if named && s.Spec.SelectedNode != "" {
				return true
			}
		}
	}
	return false
}

// setFinalizers and setStatus are refused if the claim is not as we saw it any more.
func (d *driver) setFinalizers(c *object, finalizers []string) error {
	metadata := map[string]any{"resourceVersion": c.Metadata.ResourceVersion, "finalizers": finalizers}
	return d.write(c, d.claims.path(c), merge, map[string]any{"metadata": metadata})
}

func (d *driver) setStatus(c *object, status map[string]any) error {
	metadata := map[string]any{"resourceVersion": c.Metadata.ResourceVersion}
	return d.write(c, d.claims.path(c)+"/status", merge, map[string]any{"metadata": metadata, "status": status})
}

// write patches o, and refreshes it from the answer.
func (d *driver) write(o *object, path, contentType string, body any) error {
	written := object{}
	err := d.api.do("PATCH", path, contentType, body, &written)
	if err == nil {
		*o = written
	}
	return err
}

// refresh reads o again, of which the watch may show an older version.
func (d *driver) refresh(o *object) error {
	now := object{}
	err := d.api.do("GET", d.claims.path(o), "", nil, &now)
	if err == nil && now.Metadata.UID == o.Metadata.UID {
		*o = now
	}
	return err
}
