package envsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
)

func TestSecondSyncSendsNothing(t *testing.T) {
	a, b := newHost(t), newHost(t)
	targets := []Target{{Name: "a", Host: a, FileSystem: "fs1"}, {Name: "b", Host: b, FileSystem: "fs2"}}
	program, content := programBlob(t, 300_000)
	if err := Sync(t.Context(), targets, program, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*localHost{a, b} {
		if !bytes.Equal(h.blob(t, program), content) {
			t.Error("the content differs")
		}
		info, err := os.Stat(filepath.Join(h.home, BlobPath(program.Sum)))
		if err != nil || info.Mode() != 0o700 {
			t.Errorf("mode %v %v", info.Mode(), err)
		}
		if h.sent.Load() != program.Size {
			t.Errorf("sent %d bytes, want %d", h.sent.Load(), program.Size)
		}
		if left := h.leftovers(t); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
		h.sent.Store(0)
	}
	old := time.Now().Add(-48 * time.Hour)
	path := filepath.Join(a.home, BlobPath(program.Sum))
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if err := Sync(t.Context(), targets, program, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := a.sent.Load() + b.sent.Load(); n != 0 {
		t.Errorf("the second time sent %d bytes", n)
	}
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("a used blob kept its old time: %v %v", info.ModTime(), err)
	}
}

func TestSharedHomeIsServedOnce(t *testing.T) {
	home := t.TempDir()
	var targets []Target
	var hosts []*localHost
	for i := range 8 {
		h := &localHost{home: home}
		hosts = append(hosts, h)
		targets = append(targets, Target{Name: fmt.Sprint("h", i), Host: h, FileSystem: "same"})
	}
	program, _ := programBlob(t, 100_000)
	if err := Sync(t.Context(), targets, program, nil, nil); err != nil {
		t.Fatal(err)
	}
	var sent int64
	for _, h := range hosts {
		sent += h.sent.Load()
	}
	if sent != program.Size {
		t.Errorf("sent %d bytes, want %d", sent, program.Size)
	}
}

// The first of the hosts that share a home may be the one that is down.
func TestSharedHomeWithAHostDown(t *testing.T) {
	home := t.TempDir()
	down, up := &localHost{home: home}, &localHost{home: home}
	down.down.Store(true)
	program, _ := programBlob(t, 1000)
	err := Sync(t.Context(), []Target{{Name: "down", Host: down, FileSystem: "same"}, {Name: "up", Host: up, FileSystem: "same"}}, program, nil, nil)
	if !errors.Is(err, errGone) || !strings.Contains(err.Error(), "host down: sync: connection lost") || strings.Contains(err.Error(), "up") {
		t.Errorf("%v", err)
	}
	up.blob(t, program)
}

// Two machines made from one disk image have one name for two file systems.
func TestEqualNamesOfTwoFileSystems(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	a, b := newHost(t), newHost(t)
	program, content := programBlob(t, 1000)
	if err := Sync(t.Context(), []Target{{Name: "a", Host: a, FileSystem: "same"}, {Name: "b", Host: b, FileSystem: "same"}}, program, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.blob(t, program), content) {
		t.Error("the second host has another content")
	}
}

func TestWrongSizeIsReplaced(t *testing.T) {
	h := newHost(t)
	targets := []Target{{Name: "h", Host: h, FileSystem: ""}}
	program, content := programBlob(t, 5000)
	for _, damaged := range [][]byte{{}, content[:4999], append(bytes.Clone(content), 'x')} {
		path := filepath.Join(h.home, BlobPath(program.Sum))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, damaged, 0o700); err != nil {
			t.Fatal(err)
		}
		running, err := os.Open(path) // the old file must not be written
		if err != nil {
			t.Fatal(err)
		}
		if err := Sync(t.Context(), targets, program, nil, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(h.blob(t, program), content) {
			t.Errorf("%d bytes were left as they were", len(damaged))
		}
		if still, err := io.ReadAll(running); err != nil || !bytes.Equal(still, damaged) {
			t.Errorf("the old file was changed in place: %v", err)
		}
		if err := running.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamageOnTheWayIsRefused(t *testing.T) {
	for _, hashing := range []string{"sha256sum", ""} {
		h := newHost(t)
		real := []string{"mkdir", "find", "ls", "touch", "chmod", "rm", "mv", "cat", "sh", "sleep"}
		if hashing != "" {
			real = append(real, hashing)
		}
		withPrograms(t, h, real, nil)
		h.copyFault = flipByte
		program, content := programBlob(t, 70_000)
		err := Sync(t.Context(), []Target{{Name: "h", Host: h, FileSystem: ""}}, program, nil, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "host h: send train: verify it: its SHA-256 on the host is ") {
			t.Fatalf("with %q: %v", hashing, err)
		}
		if files, _ := filepath.Glob(filepath.Join(h.home, BlobPath("*"))); len(files)+len(h.leftovers(t)) != 0 {
			t.Errorf("with %q: left over: %v", hashing, files)
		}
		h.copyFault = nil
		if err := Sync(t.Context(), []Target{{Name: "h", Host: h, FileSystem: ""}}, program, nil, nil); err != nil {
			t.Fatalf("with %q: %v", hashing, err)
		}
		if !bytes.Equal(h.blob(t, program), content) {
			t.Errorf("with %q: the content differs", hashing)
		}
	}
}

func TestEveryFailingHostIsNamed(t *testing.T) {
	good, dies, gone := newHost(t), newHost(t), newHost(t)
	dies.copyFault = func(r io.Reader) io.Reader {
		return failAfter(1000, errGone)(readerFunc(func(p []byte) (int, error) {
			dies.down.Store(true)
			return r.Read(p)
		}))
	}
	gone.down.Store(true)
	program, content := programBlob(t, 50_000)
	err := Sync(t.Context(), []Target{{Name: "good", Host: good, FileSystem: "1"}, {Name: "dies", Host: dies, FileSystem: "2"}, {Name: "gone", Host: gone, FileSystem: "3"}}, program, nil, nil)
	for _, want := range []string{"host dies: send train: connection lost", "host gone: sync: connection lost"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if !bytes.Equal(good.blob(t, program), content) {
		t.Error("the good host did not get it")
	}
	// The host is back: what was left of the first try does no harm.
	dies.down.Store(false)
	dies.copyFault = nil
	if err := Sync(t.Context(), []Target{{Name: "dies", Host: dies, FileSystem: "2"}}, program, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dies.blob(t, program), content) {
		t.Error("the host that was gone has another content")
	}
}

func TestFullHome(t *testing.T) {
	h := smallHome(t, "256k")
	program, _ := programBlob(t, 2<<20)
	err := Sync(t.Context(), []Target{{Name: "h", Host: h, FileSystem: ""}}, program, nil, nil)
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "host h: send train: ") || !strings.Contains(err.Error(), "MiB left and 3 MiB are needed") {
		t.Errorf("%v", err)
	}
	if left := h.leftovers(t); len(left) != 0 {
		t.Errorf("left over on a full disk: %v", left)
	}
	// Full to the last byte: not even the folder's name can be written.
	fill, err := os.Create(filepath.Join(h.home, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fill.Write(make([]byte, 1<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(t.Context(), h); err == nil || !strings.HasPrefix(err.Error(), "inspect: the home folder's file system is full: ") {
		t.Errorf("%v", err)
	}
}

func TestReadOnlyHome(t *testing.T) {
	h := smallHome(t, "1m")
	if _, err := Inspect(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	makeReadOnly(t, h)
	if _, err := Inspect(t.Context(), h); err == nil || !strings.HasPrefix(err.Error(), "inspect: the home folder is read-only: ") {
		t.Errorf("%v", err)
	}
	program, _ := programBlob(t, 1000)
	err := Sync(t.Context(), []Target{{Name: "h", Host: h, FileSystem: ""}}, program, nil, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "host h: send train: the home folder is read-only: ") {
		t.Errorf("%v", err)
	}
}

// What a server makes of a full disk over sftp has no words in it.
func TestExplainAsksTheHost(t *testing.T) {
	h := newHost(t)
	if err := os.MkdirAll(filepath.Join(h.home, ".plx/blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	failure := errors.New(`sftp: "Failure" (SSH_FX_FAILURE)`)
	withPrograms(t, h, []string{"rm", "cat"}, map[string]string{
		"df": "echo Filesystem 1024-blocks Used Available Capacity Mounted; echo /dev/sda1 100000 97952 2048 98% /home\n",
	})
	got := explain(t.Context(), h, 10<<20, failure)
	if !errors.Is(got, failure) || !strings.HasPrefix(got.Error(), "the home folder's file system has 2 MiB left and 11 MiB are needed: sftp") {
		t.Errorf("%v", got)
	}
	if got := explain(t.Context(), h, 1<<20, failure); got != failure {
		t.Errorf("there is room: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	asked := h.runs.Load()
	if got := explain(ctx, h, 10<<20, failure); got != failure || h.runs.Load() != asked {
		t.Errorf("nobody waits for it any more: %v, asked %d times", got, h.runs.Load()-asked)
	}
}

// As many hosts are served at once as may be. None gets anything before, so that
// none is done yet and another in its place when they are counted.
func TestManyHostsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	all := make(chan struct{})
	var targets []Target
	var served, asked atomic.Int64
	for i := range maxHosts + 10 {
		h := newHost(t)
		h.copyFault = func(r io.Reader) io.Reader {
			if served.Add(1) == maxHosts {
				for _, other := range targets {
					asked.Add(min(1, other.Host.(*localHost).runs.Load()))
				}
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
			return r
		}
		targets = append(targets, Target{Name: fmt.Sprint("h", i), Host: h, FileSystem: ""})
	}
	if err := Sync(ctx, targets, BytesBlob("b", make([]byte, 1000)), nil, nil); err != nil {
		t.Fatalf("%d hosts were served: %v", served.Load(), err)
	}
	if asked.Load() != maxHosts {
		t.Errorf("%d hosts at once, want %d", asked.Load(), maxHosts)
	}
}

func TestProgressReachesTheTotal(t *testing.T) {
	a, b := newHost(t), newHost(t)
	program, _ := programBlob(t, 200_000)
	last := map[string]int64{} // without a lock: calls come one at a time
	err := Sync(t.Context(), []Target{{Name: "a", Host: a, FileSystem: ""}, {Name: "b", Host: b, FileSystem: ""}}, program, func(host, blob string, sent, total int64) {
		before, known := last[host] // the size first, then every piece
		if blob != "train" || total != program.Size || known != (sent > before) || !known && sent != 0 {
			t.Errorf("%s %s %d of %d after %d", host, blob, sent, total, before)
		}
		last[host] = sent
	}, nil)
	if err != nil || last["a"] != program.Size || last["b"] != program.Size {
		t.Errorf("%v %v", last, err)
	}
}

func TestCancelEndsSync(t *testing.T) {
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	h.copyFault = func(r io.Reader) io.Reader {
		return readerFunc(func(p []byte) (int, error) { cancel(); return r.Read(p) })
	}
	program, _ := programBlob(t, 10<<20)
	err := Sync(ctx, []Target{{Name: "h", Host: h, FileSystem: ""}}, program, nil, nil)
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "host h: send train: ") {
		t.Errorf("%v", err)
	}
	if left := h.leftovers(t); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestOldTemporaryFilesAreRemoved(t *testing.T) {
	h := newHost(t)
	folder := filepath.Join(h.home, ".plx/blobs")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{".old": 49 * time.Hour, ".new": time.Hour} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sync(t.Context(), []Target{{Name: "h", Host: h, FileSystem: ""}}, BytesBlob("b", []byte("b")), nil, nil); err != nil {
		t.Fatal(err)
	}
	if left := h.leftovers(t); len(left) != 1 || filepath.Base(left[0]) != ".new" {
		t.Errorf("left over: %v", left)
	}
}

// BytesBlob makes a blob of content, which must not change afterwards.
func BytesBlob(name string, content []byte) Blob {
	sum := sha256.Sum256(content)
	return Blob{
		Name: name, Sum: hex.EncodeToString(sum[:]), Size: int64(len(content)), Mode: 0o600,
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}
}

// A program travels compressed to a host that has gzip, and is the same there.
func TestPacked(t *testing.T) {
	content := bytes.Repeat([]byte("plx program\x00"), 100_000)
	program := programOf(t, content)
	tools := []string{"sh", "cat", "mkdir", "chmod", "ls", "find", "stat", "head", "touch", "mv", "rm", "sha256sum", "cut", "sync"}
	for name, test := range map[string]struct {
		tools   []string
		scripts map[string]string
		least   int64 // bytes that are sent
		most    int64
		err     string
	}{
		"gzip":        {tools: append(slices.Clone(tools), "gzip"), least: 1, most: int64(len(content)) / 4},
		"no gzip":     {tools: tools, least: int64(len(content)), most: int64(len(content))},
		"broken gzip": {tools: tools, scripts: map[string]string{"gzip": "#!/bin/sh\necho broken >&2\nexit 3\n"}, most: int64(len(content)) / 4, err: "host h: send train: unpack it: "},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			withPrograms(t, h, test.tools, test.scripts)
			sent := int64(0)
			err := Sync(t.Context(), []Target{{Name: "h", Host: h, FileSystem: ""}}, program, func(_, _ string, n, _ int64) { sent = max(sent, n) }, nil)
			if test.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(h.blob(t, program), content) {
					t.Error("the content differs")
				}
			} else if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%v, want %s", err, test.err)
			}
			if sent < test.least || sent > test.most {
				t.Errorf("%d bytes were sent of %d, want %d to %d", sent, len(content), test.least, test.most)
			}
			if left := h.leftovers(t); len(left) != 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}
