package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// server has the claims as the API server has them, and the PodSchedulings of the driver, which are all up to date.
// Its watch is behind: the driver gets the answers of its requests, and nothing else.
type server struct {
	claims  map[string]*object
	driver  *driver
	losing  string // the claim whose next allocation is recorded without an answer
	version int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, group+"/namespaces/team/"), "/")
	if parts[0] == "podschedulings" {
		if r.Method == "PATCH" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		json.NewEncoder(w).Encode(s.driver.schedulings.items["team/"+parts[1]])
		return
	}
	claim := s.claims[parts[1]]
	if r.Method == "PATCH" {
		patch := *claim // enough of a merge patch for lists and a first allocation
		if json.NewDecoder(r.Body).Decode(&patch); patch.Metadata.ResourceVersion != claim.Metadata.ResourceVersion {
			w.WriteHeader(http.StatusConflict)
			return
		}
		s.version++
		patch.Metadata.ResourceVersion = fmt.Sprint(s.version)
		*claim = patch
		if s.losing == parts[1] && claim.Status.Allocation != nil {
			s.losing = ""
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
	}
	json.NewEncoder(w).Encode(claim)
}

func decoded(t *testing.T, text string) *object {
	o := &object{}
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestASeatWhoseAllocationHadNoAnswerIsGivenToNobodyElse(t *testing.T) {
	s := &server{claims: map[string]*object{}, version: 100, losing: "a"}
	served := httptest.NewServer(s)
	defer served.Close()
	items := func(plural string, objects ...string) *store {
		known := &store{group, plural, "", map[string]*object{}, true}
		for _, text := range objects {
			known.see(decoded(t, text), false)
		}
		return known
	}
	claim := `{"metadata": {"namespace": "team", "name": "%[1]s", "uid": "%[1]s", "resourceVersion": "1"}, "spec": {"resourceClassName": "desk"}}`
	a, b := fmt.Sprintf(claim, "a"), fmt.Sprintf(claim, "b")
	s.claims["a"], s.claims["b"] = decoded(t, a), decoded(t, b)
	asked := func(name, node string) *object {
		claims := fmt.Sprintf(`[{"name": "seat", "driverName": "%s", "resourceClaimName": "%s"}]`, driverName, name)
		return decoded(t, fmt.Sprintf(`{"metadata": {"namespace": "team", "name": "%s"}, "spec": {"selectedNode": "%s", "claims": %s}}`, name, node, claims))
	}
	s.driver = &driver{
		api:         &api{server: served.URL, http: served.Client()},
		classes:     items("resourceclasses", `{"metadata": {"name": "desk"}, "driverName": "`+driverName+`", "parameters": {"seats": 1}}`),
		claims:      items("resourceclaims", a, b),
		schedulings: items("podschedulings"),
		nodes:       items("nodes"),
	}
	s.driver.schedulings.see(asked("a", "node-1"), false)
	s.driver.lookAtAll()
	if s.claims["a"].Status.Allocation == nil || !s.driver.again {
		t.Fatal("the allocation of which nobody heard is not recorded, or forgotten")
	}
	s.driver.schedulings.see(asked("a", ""), false) // the controller has lost patience
	s.driver.schedulings.see(asked("b", "node-1"), false)
	version := s.version
	if s.driver.lookAtAll(); s.version != version {
		t.Error("it goes on without a pause")
	}
	for range 3 {
		s.driver.unsure = time.Time{} // a second has passed
		s.driver.lookAtAll()
		if s.claims["a"].Status.Allocation != nil && s.claims["b"].Status.Allocation != nil {
			t.Fatal("both have the only seat")
		}
	}
	if !s.driver.alone || s.driver.claims.items["team/a"].Status.Allocation == nil {
		t.Error("what is recorded was not read back")
	}
}
