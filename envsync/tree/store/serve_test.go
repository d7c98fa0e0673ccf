//go:build linux

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/envsync/tree"
)

// Two launches send the same folder to one host at the same time.
func TestTwoConcurrentSendsToOneHostSucceed(t *testing.T) {
	f := scan(t, project(t))
	for range 10 {
		h := newHost(t)
		var both errgroup.Group
		for range 2 {
			both.Go(func() error { return tree.Send(t.Context(), targets(h), f, tree.SendOptions{}) })
		}
		if err := both.Wait(); err != nil {
			t.Fatal(err)
		}
		h.noLeftovers()
		if got, err := os.ReadFile(filepath.Join(h.build(f), "train.py")); err != nil || string(got) != "print(1)\n" {
			t.Errorf("train.py is %q, %v", got, err)
		}
	}
}

// A cancelled Serve does not store a manifest whose files it lacks, even if
// the sender's stream has ended.
func TestCancelledServeStoresNoManifest(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	var in bytes.Buffer
	if err := f.Write(&in); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Serve(ctx, &in, new(bytes.Buffer), nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	if _, err := h.Manifest(f.ID()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host has a list of files that it does not have: %v", err)
	}
}

// removeAbandoned keeps a recent temporary file, which another launch is about
// to rename. Its modification time is in 1980.
func TestTidyLeavesFreshFiles(t *testing.T) {
	h := newHost(t)
	fresh := filepath.Join(h.incoming(), "fresh")
	write(t, fresh, "complete")
	if err := os.Chtimes(fresh, verifiedEpoch, verifiedEpoch); err != nil {
		t.Fatal(err)
	}
	h.removeAbandoned()
	if _, err := os.Stat(fresh); err != nil {
		t.Error(err)
	}
}

// Temporary files that a launch has left long ago are removed.
func TestTidyRemovesAbandonedFiles(t *testing.T) {
	h := newHost(t)
	left := filepath.Join(h.incoming(), "left")
	write(t, left, "cut off")
	later(t, abandoned+time.Minute, func(*testing.T) { h.removeAbandoned() })
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
}

// If finish fails on the host, Serve does not confirm that the host has the
// files.
func TestServeFailsIfFinishFails(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	var in, out bytes.Buffer
	if err := f.Write(&in); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no room")
	if err := h.Serve(t.Context(), &in, &out, nil, func(tree.Sum) error { return failed }); !errors.Is(err, failed) || strings.Contains(out.String(), tree.DoneReply) {
		t.Errorf("%v, answer %q", err, out.String())
	}
}

// Serve rejects a stream that continues after the last file.
func TestStreamLongerThanTheFilesIsRejected(t *testing.T) {
	if err := newHost(t).storeAll(t.Context(), strings.NewReader("x"), &lacks{}); err == nil || !strings.Contains(err.Error(), "longer than the files") {
		t.Errorf("%v, want that the stream is too long", err)
	}
}

// Files that exceed the free disk space are rejected before they are sent. The
// error names the largest.
func TestFilesLargerThanFreeSpaceAreRejected(t *testing.T) {
	h := newHost(t)
	var m tree.Manifest // 2 PiB in total, in files of the maximum size
	for i := range 512 {
		m.Entries = append(m.Entries, tree.Entry{Path: fmt.Sprintf("part%03d", i), Kind: tree.File, Mode: 0o644, Size: 1<<42 - 1, Sum: tree.Sum{1, byte(i), byte(i >> 8)}})
	}
	m.Entries[100].Size++
	var in, out bytes.Buffer
	if err := m.Write(&in); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(h.Serve(t.Context(), &in, &out, nil, nil))
	if !strings.Contains(text, "the largest is part100") {
		t.Errorf("%s, want that the files do not fit", text)
	}
	var free, need uint64
	if _, err := fmt.Sscanf(text[max(0, strings.Index(text, " has ")):], " has %d MiB left, and the files need %d MiB", &free, &need); err != nil || free > need || need != 1<<32 {
		t.Errorf("%q: want less than 2^32 MiB, which the files and their copies in the folder need: %v", text, err)
	}
	if out.Len() > 0 {
		t.Errorf("the host asks for %q of what does not fit", out.String())
	}
	small := []tree.Entry{{Path: "small", Kind: tree.File, Size: 9}}
	if err := h.checkSpace(tree.Manifest{Entries: small}, small); err != nil {
		t.Errorf("a small file: %v", err)
	}
}

// Serve rejects a stream that is truncated at any point, and stores nothing of
// the incomplete file.
func TestTruncatedStreamIsRejected(t *testing.T) {
	h := newHost(t)
	if err := os.MkdirAll(h.incoming(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.Serve(t.Context(), strings.NewReader("x"), new(bytes.Buffer), nil, nil); err == nil {
		t.Error("a list of files that is cut off is one")
	}
	if err := h.receive(t.Context(), strings.NewReader(""), &lacks{}); !errors.Is(err, io.EOF) {
		t.Errorf("before its first byte: %v", err)
	}
	content := strings.Repeat("x", 100)
	if err := h.Store.put(strings.NewReader(content[:60]), sha256.Sum256([]byte(content)), 100); !errors.Is(err, io.EOF) {
		t.Errorf("within a file: %v, want its end", err)
	}
	h.noLeftovers()
}
