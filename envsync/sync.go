package envsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Target is one host to bring blobs to.
type Target struct {
	// Name is what errors and progress call the host.
	Name string
	Host Host
	// FileSystem is Facts.FileSystem: hosts with equal ones share the home.
	// An empty one is shared with nobody.
	FileSystem string
}

// Progress is told of every piece that was handed to a host's connection:
// sent of total bytes of the named blob. A blob that is there already, or that
// came through a shared home, is told once, with sent 0 of total 0. Sync calls
// it from one goroutine at a time, so it needs no lock and must not block.
type Progress func(host, blob string, sent, total int64)

// maxHosts is how many hosts are worked on at once.
const maxHosts = 64

// Sync brings blobs to targets, all hosts at once, and sends each blob once
// for hosts that share a home. A blob is sent to a temporary name, its hash
// verified on the host, flushed to its disk, and then renamed. What is there
// already is hashed on the host, once in each boot of it unless the file has
// changed, and sent again only if it is wrong; its time is set to now, give or
// take an hour, so that the oldest blobs are those no longer used. What is no
// file in a blob's place is removed. On a nil error every blob is at BlobPath
// on every target.
//
// A host that fails does not stop the others. The error joins one for each
// host that failed, which names host and blob. Sync returns early only when
// ctx ends. progress may be nil.
func Sync(ctx context.Context, targets []Target, blobs []Blob, progress Progress) error {
	s := &syncer{blobs: distinct(blobs), progress: progress, slots: make(chan struct{}, maxHosts)}
	errs := make([]error, len(targets))
	var wait sync.WaitGroup
	for _, group := range sharing(targets) {
		wait.Go(func() { s.group(ctx, targets, group, errs) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

type syncer struct {
	blobs    []Blob
	slots    chan struct{}
	lock     sync.Mutex // serialises progress
	progress Progress
}

// sharing returns the indices of targets, those with one file system together
// and in the order of their first host.
func sharing(targets []Target) [][]int {
	var groups [][]int
	byFileSystem := map[string]int{}
	for i, t := range targets {
		at, known := byFileSystem[t.FileSystem]
		if !known || t.FileSystem == "" {
			at = len(groups)
			groups = append(groups, nil)
			byFileSystem[t.FileSystem] = at
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// distinct drops blobs with a sum that is there already.
func distinct(blobs []Blob) []Blob {
	var kept []Blob
	seen := map[string]bool{}
	for _, b := range blobs {
		if !seen[b.Sum] {
			kept = append(kept, b)
		}
		seen[b.Sum] = true
	}
	return kept
}

// group serves hosts that share a home: one after the other until one has all
// blobs, then the rest at once, which find the blobs there. Each looks for
// itself: equal names of file systems may also come from a copied disk.
func (s *syncer) group(ctx context.Context, targets []Target, group []int, errs []error) {
	for len(group) > 0 {
		i := group[0]
		group = group[1:]
		if errs[i] = s.host(ctx, targets[i], false); errs[i] == nil {
			break
		}
	}
	var wait sync.WaitGroup
	for _, i := range group {
		wait.Go(func() { errs[i] = s.host(ctx, targets[i], true) })
	}
	wait.Wait()
}

// host brings all blobs to one host. shared says that another host has just
// put them into this one's home.
func (s *syncer) host(ctx context.Context, t Target, shared bool) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return fmt.Errorf("host %s: sync: %w", t.Name, ctx.Err())
	}
	missing, err := look(ctx, t.Host, s.blobs, shared)
	if err != nil {
		return fmt.Errorf("host %s: sync: %w", t.Name, err)
	}
	for _, b := range s.blobs {
		if !missing[b.Sum] {
			s.tell(t.Name, b.Name, 0, 0)
			continue
		}
		tell := func(sent int64) { s.tell(t.Name, b.Name, sent, b.Size) }
		if err := upload(ctx, t.Host, b, tell); err != nil {
			return fmt.Errorf("host %s: send %s: %w", t.Name, b.Name, err)
		}
	}
	return nil
}

func (s *syncer) tell(host, blob string, sent, total int64) {
	if s.progress == nil {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.progress(host, blob, sent, total)
}

// telling is a reader that tells how far it has been read.
type telling struct {
	r    io.Reader
	sent int64
	tell func(sent int64)
}

func (t *telling) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.sent += int64(n)
		t.tell(t.sent)
	}
	return n, err
}
