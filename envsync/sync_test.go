package envsync

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/plx-run/plx/internal/patience"
)

// programBlob is a program that cannot be compressed.
func programBlob(t *testing.T, size int) (Blob, []byte) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	random.Read(content)
	return programOf(t, content), content
}

func programOf(t *testing.T, content []byte) Blob {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := FileBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestFileBlob(t *testing.T) {
	b := programOf(t, []byte("abc"))
	if b.Name != "train" || b.Size != 3 || b.Mode != 0o700 || b.Sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("%+v", b)
	}
	if err := os.Chmod(b.Path, 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := FileBlob(b.Path); err != nil || b.Mode != 0o600 {
		t.Errorf("a file that is no program: %v %v", b.Mode, err)
	}
	for path, want := range map[string]string{
		t.TempDir():           "it is not a regular file",
		b.Path + ".not-there": "no such file or directory",
	} {
		if _, err := FileBlob(path); err == nil || err.Error() != "read "+path+": "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPacked(t *testing.T) {
	content := bytes.Repeat([]byte("plx program\x00"), 100_000)
	b := programOf(t, content)
	packed, err := b.Packed()
	if err != nil || len(packed) == 0 || len(packed) > len(content)/4 {
		t.Fatalf("%d bytes, %v", len(packed), err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the content differs: %v", err)
	}
	if again, err := b.Packed(); err != nil || &again[0] != &packed[0] {
		t.Errorf("it was packed twice, %v", err)
	}
	for name, content := range map[string][]byte{"small": bytes.Repeat([]byte{'x'}, leastPacked-1), "random": nil} {
		b := programOf(t, content)
		if name == "random" {
			b, _ = programBlob(t, 300_000)
		}
		if packed, err := b.Packed(); err != nil || packed != nil {
			t.Errorf("%s: packed into %d bytes, %v", name, len(packed), err)
		}
	}
	gone := programOf(t, content)
	if err := os.Remove(gone.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Packed(); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read it here: ") {
		t.Errorf("%v", err)
	}
}

// Of hosts that share a home one is worked on first. It may be one that is down.
func TestEachServesASharedHomeOnce(t *testing.T) {
	errGone := errors.New("connection lost")
	targets := []Target{{"down", "same"}, {"up", "same"}, {"other", "b"}, {"alone", ""}, {"third", "same"}, {"too", ""}, {"fourth", "same"}}
	var mu sync.Mutex
	var first, rest []string
	err := Each(t.Context(), targets, func(i int, shared bool) error {
		mu.Lock()
		defer mu.Unlock()
		if shared {
			if rest = append(rest, targets[i].Name); !slices.Contains(first, "up") {
				t.Error("before one has succeeded")
			}
			return nil
		}
		if first = append(first, targets[i].Name); i == 0 {
			return errGone
		}
		return nil
	})
	slices.Sort(first)
	slices.Sort(rest)
	if got, want := strings.Join(first, " ")+"; "+strings.Join(rest, " "), "alone down other too up; fourth third"; got != want || !errors.Is(err, errGone) {
		t.Errorf("%s, want %s: %v", got, want, err)
	}
}

// As many hosts are served at once as may be. None is done before, so that none has another in
// its place when they are counted.
func TestManyHostsAreBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	all := make(chan struct{})
	var begun, most atomic.Int64
	err := Each(ctx, make([]Target, maxHosts+10), func(int, bool) error {
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

// Whoever has no turn when the context ends is named.
func TestEachNamesHostsWithoutATurn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	targets := make([]Target, maxHosts+1)
	for i := range targets {
		targets[i].Name = "h"
	}
	var begun atomic.Int64
	err := Each(ctx, targets, func(int, bool) error {
		if begun.Add(1) == maxHosts {
			cancel()
		}
		<-ctx.Done()
		return nil
	})
	// A slot that is free counts as much as the end of the context.
	if n := begun.Load(); n < int64(len(targets)) && (!errors.Is(err, context.Canceled) || err.Error() != "host h: context canceled") {
		t.Errorf("%d of %d, %v", n, len(targets), err)
	}
}
