package tree

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// Of the hosts that share a home folder, one is served first, even if that
// host is down.
func TestSharedHomeIsServedByOneHostFirst(t *testing.T) {
	errGone := errors.New("connection lost")
	var targets []Target
	for name, share := range map[string]string{"other": "b", "alone": "", "too": ""} {
		targets = append(targets, Target{Name: name, FileSystem: share})
	}
	for _, name := range []string{"down", "up", "third", "fourth"} {
		targets = append(targets, Target{Name: name, FileSystem: "same"})
	}
	var mu sync.Mutex
	var begun []string // started hosts among those that share a home folder
	all := 0
	err := forEachHost(t.Context(), targets, func(to Target) error {
		mu.Lock()
		defer mu.Unlock()
		if all++; to.FileSystem == "same" {
			begun = append(begun, to.Name)
		}
		if to.Name == "down" {
			return errGone
		}
		return nil
	})
	slices.Sort(begun[min(2, len(begun)):]) // the remaining hosts are served in parallel, in any order
	if got, want := strings.Join(begun, " "), "down up fourth third"; got != want || all != len(targets) || !errors.Is(err, errGone) || err.Error() != "host down: connection lost" {
		t.Errorf("%s, want %s, %d in all: %v", got, want, all, err)
	}
}

// At most maxHosts hosts are served at once. No call returns before the count,
// so no slot is used twice.
func TestConcurrentHostsAreLimited(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	all := make(chan struct{})
	var begun, most atomic.Int64
	err := forEachHost(ctx, make([]Target, maxHosts+10), func(Target) error {
		if begun.Add(1) == maxHosts {
			most.Store(begun.Load())
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil || most.Load() != maxHosts || begun.Load() != maxHosts+10 {
		t.Errorf("%d at once, %d in all: %v", most.Load(), begun.Load(), err)
	}
}

// A host that has not been served when the context ends is named in the error.
func TestCancelledHostsAreNamed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	targets := make([]Target, maxHosts+1)
	for i := range targets {
		targets[i].Name = "h"
	}
	var begun atomic.Int64
	err := forEachHost(ctx, targets, func(Target) error {
		if begun.Add(1) == maxHosts {
			cancel()
		}
		<-ctx.Done()
		return nil
	})
	// if a slot is free when the context ends, either case of the select may
	// be taken
	if n := begun.Load(); n < int64(len(targets)) && (!errors.Is(err, context.Canceled) || err.Error() != "host h: context canceled") {
		t.Errorf("%d of %d, %v", n, len(targets), err)
	}
}
