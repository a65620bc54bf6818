package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	group = "/apis/parley.dev/v1alpha1"
	apply = "application/apply-patch+yaml" // JSON is YAML
	merge = "application/merge-patch+json"
)

// api is an API server. If there is a file with a token, which Kubernetes renews, each request carries the token.
type api struct {
	server, tokenFile string
	http              *http.Client
}

// serviceAccount is the API server as a pod sees it, whose service account's files are in the directory.
func serviceAccount(directory string) (*api, error) {
	authority, err := os.ReadFile(directory + "/ca.crt")
	if err != nil {
		return nil, fmt.Errorf("%w; outside of a cluster give --server, such as the address of kubectl proxy", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	address := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return &api{"https://" + address, directory + "/token", &http.Client{Transport: transport}}, nil
}

// refused is the error of a request that had no effect. After any other error it may have had one, or have one later.
var refused = errors.New("refused")

// open returns the body of a 2xx answer, and anything else as an error.
func (a *api) open(ctx context.Context, method, path, contentType string, body any) (io.ReadCloser, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := a.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		defer answer.Body.Close()
		words, _ := io.ReadAll(answer.Body)
		err := fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, words)
		if answer.StatusCode/100 == 4 {
			err = fmt.Errorf("%w: %w", refused, err)
		}
		return nil, err
	}
	return answer.Body, nil
}

// do sends one request, which is over within 30 s, and decodes the answer.
func (a *api) do(method, path, contentType string, body, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, err := a.open(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	return json.NewDecoder(answer).Decode(into)
}

// store is what is known of one kind of object. Only the main loop touches it.
type store struct {
	group, plural, selector string
	items                   map[string]*object
	listed                  bool
}

func (s *store) path(o *object) string {
	return fmt.Sprintf("%s/namespaces/%s/%s/%s", s.group, o.Metadata.Namespace, s.plural, o.Metadata.Name)
}

// see takes over an object unless a newer version is known: what was written here is, before the watch brings it.
func (s *store) see(o *object, gone bool) {
	if known := s.items[o.key()]; known != nil && older(o, known) {
		return
	}
	if s.items[o.key()] = o; gone {
		delete(s.items, o.key())
	}
}

// older compares resourceVersions, which are decimal numbers (promised by Kubernetes 1.35 and later).
func older(one, other *object) bool {
	a, b := one.Metadata.ResourceVersion, other.Metadata.ResourceVersion
	return len(a) < len(b) || len(a) == len(b) && a < b
}

// follow lists and watches for ever, and hands each change to the main loop.
func (a *api) follow(s *store, changes chan<- func()) {
	for {
		if err := a.listAndWatch(s, changes); err != io.EOF { // the server ends every watch at some time
			log.Printf("%s: %v", s.plural, err)
			time.Sleep(time.Second)
		}
	}
}

func (a *api) listAndWatch(s *store, changes chan<- func()) error {
	var list struct {
		object
		Items []*object
	}
	path := s.group + "/" + s.plural + "?labelSelector=" + s.selector
	if err := a.do("GET", path, "", nil, &list); err != nil {
		return err
	}
	changes <- func() {
		maps.DeleteFunc(s.items, func(_ string, known *object) bool { return older(known, &list.object) })
		for _, item := range list.Items {
			s.see(item, false)
		}
		s.listed = true
	}
	path += "&watch=true&resourceVersion=" + list.Metadata.ResourceVersion
	stream, err := a.open(context.Background(), "GET", path, "", nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	for decoder := json.NewDecoder(stream); ; {
		var event struct {
			Type   string
			Object object // of an ERROR it can't be decoded; then all is listed anew
		}
		if err := decoder.Decode(&event); err != nil {
			return err
		}
		if event.Type != "BOOKMARK" { // of no object
			changes <- func() { s.see(&event.Object, event.Type == "DELETED") }
		}
	}
}
