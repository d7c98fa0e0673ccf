//go:build linux

package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/envsync/tree"
)

// large returns random bytes, which cannot be compressed.
func large(seed uint64, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}

// After an insertion in the middle of a large file, which moves the rest, only
// few bytes are sent.
func TestOnlyChangedChunksAreSent(t *testing.T) {
	const size, change = 16 << 20, 160 << 10
	dir := t.TempDir()
	file, h := filepath.Join(dir, "data"), newHost(t)
	before := large(1, size)
	write(t, file, string(before))
	send(t, scan(t, dir), h)
	first := h.got.Swap(0)
	after := bytes.Join([][]byte{before[:size/3], large(2, change), before[size/3+7:]}, nil)
	write(t, file, string(after))
	f := scan(t, dir)
	send(t, f, h)
	if got := h.got.Swap(0); first < size || got > change+1<<20 {
		t.Errorf("%d bytes travelled at first, %d after a change of %d", first, got, change)
	}
	if text, err := os.ReadFile(filepath.Join(h.build(f), "data")); err != nil || !bytes.Equal(text, after) {
		t.Errorf("the changed file differs: %v", err)
	}
	// All chunks of this file are in the store.
	write(t, file, string(before[size/2:])+string(before[:size/2]))
	if err := os.Rename(file, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	f = scan(t, dir)
	send(t, f, h)
	if text, err := os.ReadFile(filepath.Join(h.build(f), "other")); err != nil || !bytes.Equal(text[:size/2], before[size/2:]) || !bytes.Equal(text[size/2:], before[:size/2]) {
		t.Errorf("the file of known chunks differs: %v", err)
	}
	h.noLeftovers()
}

// A file may use chunks of a stored content that are not adjacent there.
func TestChunksWithAGap(t *testing.T) {
	dir, h := t.TempDir(), newHost(t)
	before := large(8, 2<<20)
	write(t, filepath.Join(dir, "data"), string(before))
	f := scan(t, dir)
	send(t, f, h)
	e, _ := f.Find("data")
	var lengths []int64
	for _, n := range e.Chunks.All() {
		lengths = append(lengths, n)
	}
	const one = 20
	after := slices.Concat(before[:lengths[0]], before[lengths[0]+lengths[1]:]) // without the second chunk
	e.Chunks, e.Size, e.Sum = e.Chunks[:one]+e.Chunks[2*one:], int64(len(after)), sha256.Sum256(after)
	l := h.lacking(tree.Manifest{Entries: []tree.Entry{e}})
	if l.travels() || len(l.files) != 1 {
		t.Fatalf("lacks %+v, want a file of chunks that are here", l)
	}
	if err := h.storeAll(t.Context(), strings.NewReader(""), l); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(h.Path(e.Sum)); err != nil || !bytes.Equal(text, after) {
		t.Errorf("the content differs: %v", err)
	}
}

// A chunk is found even if it is the only useful one of its content. Chunk
// lists are read from the newest on, so old lists beyond the size limit do not
// hide a new one.
func TestSingleSharedChunkIsFound(t *testing.T) {
	dir, h := t.TempDir(), newHost(t)
	content := large(11, 2<<20)
	write(t, filepath.Join(dir, "data"), string(content))
	f := scan(t, dir)
	send(t, f, h)
	old := filepath.Join(h.lists(), strings.Repeat("0", 64)) // sorts before all other lists in the folder
	write(t, old, "")
	if err := errors.Join(os.Truncate(old, maxLists), os.Chtimes(old, verifiedEpoch, verifiedEpoch)); err != nil {
		t.Fatal(err)
	}
	e, _ := f.Find("data")
	for _, n := range e.Chunks.All() {
		const one = 20
		e.Chunks, e.Size, e.Sum = e.Chunks[:one], n, sha256.Sum256(content[:n])
		break
	}
	if l := h.lacking(tree.Manifest{Entries: []tree.Entry{e}}); l.travels() || len(l.here) != 1 {
		t.Errorf("lacks %+v, want a file of one chunk that is here", l)
	}
}

// Contents that have needed chunks, and their chunk lists, may be missing or
// damaged.
func TestChunksOfDamagedContents(t *testing.T) {
	before := large(3, 4<<20)
	after := append(large(4, 100<<10), before...)
	for name, damage := range map[string]func(h *host, list string) error{
		"content gone": func(h *host, list string) error { return os.Remove(h.content(list)) },
		"content damaged": func(h *host, list string) error {
			return os.WriteFile(h.content(list), large(5, len(before)), 0o600)
		},
		"list cut off": func(_ *host, list string) error { return os.Truncate(list, 1000) },
		"no list":      func(_ *host, list string) error { return os.WriteFile(list, []byte("no list"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHost(t), t.TempDir()
			write(t, filepath.Join(dir, "data"), string(before))
			send(t, scan(t, dir), h)
			if err := damage(h, h.onlyList()); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "data"), string(after))
			f := scan(t, dir)
			send(t, f, h)
			if text, err := os.ReadFile(filepath.Join(h.build(f), "data")); err != nil || !bytes.Equal(text, after) {
				t.Errorf("the file differs: %v", err)
			}
		})
	}
}

// A content with needed chunks is corrupt, but its times are unchanged. It is
// removed, and the next Send sends the data instead.
func TestChunksOfADecayedContent(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	before := large(9, 4<<20)
	write(t, filepath.Join(dir, "data"), string(before))
	send(t, scan(t, dir), h)
	content := h.content(h.onlyList())
	keeping(t, content, flip)
	write(t, filepath.Join(dir, "data"), string(before)+"more")
	f := scan(t, dir)
	if err := tree.Send(t.Context(), targets(h), f, tree.SendOptions{}); !errors.As(err, new(*tree.DamagedError)) {
		t.Errorf("%v, want the damage", err)
	}
	if _, err := os.Stat(content); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged content is there: %v", err)
	}
	send(t, f, h)
	if text, err := os.ReadFile(filepath.Join(h.build(f), "data")); err != nil || string(text) != string(before)+"more" {
		t.Errorf("the file differs: %v", err)
	}
}

// If a chunk list has wrong offsets, the hash of the assembled file differs.
// The list is removed, so this happens only once.
func TestWrongChunkListIsDetected(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	before := large(6, 4<<20)
	write(t, filepath.Join(dir, "data"), string(before))
	send(t, scan(t, dir), h)
	list := h.onlyList()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	const sum, one = 16, 20
	for i := range sum { // give the first chunk the sum of the second one
		text[i], text[one+i] = text[one+i], text[i]
	}
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "data"), string(before)+"more")
	f := scan(t, dir)
	err = tree.Send(t.Context(), targets(h), f, tree.SendOptions{})
	if err == nil || !strings.Contains(err.Error(), "and removed there: data") {
		t.Errorf("%v, want the damage", err)
	}
	h.noLeftovers()
	if _, err := os.Stat(h.content(list)); err != nil {
		t.Errorf("the content of the list, which is right, is gone: %v", err)
	}
	send(t, f, h)
	h.build(f)
}

// Lists go with their contents.
func TestPruneRemovesChunkLists(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	write(t, filepath.Join(dir, "data"), string(large(7, 2<<20)))
	f := scan(t, dir)
	send(t, f, h)
	later := time.Now().Add(time.Hour)
	prune := func(keep ...tree.Sum) (n int) {
		if err := h.Prune(t.Context(), keep, later, func(path string, _ int64) error { n++; return os.Remove(path) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := prune(f.ID()); n != 0 {
		t.Errorf("%d files in use were pruned", n)
	}
	if n := prune(); n != 3 {
		t.Errorf("%d files were pruned, want the list of files, the content and its list of chunks", n)
	}
}

// onlyList returns the path of the store's only chunk list.
func (h *host) onlyList() string {
	h.t.Helper()
	all, err := filepath.Glob(filepath.Join(h.lists(), "*"))
	if err != nil || len(all) != 1 {
		h.t.Fatalf("lists of chunks %v, %v", all, err)
	}
	return all[0]
}

// content returns the path of the content that a chunk list describes.
func (h *host) content(list string) string {
	sum, err := tree.ParseSum(filepath.Base(list))
	if err != nil {
		h.t.Fatal(err)
	}
	return h.Path(sum)
}

// An intact content in the folder of Beside is not sent.
func TestBesideProvidesContentsAndChunks(t *testing.T) {
	f := scan(t, project(t))
	entry, _ := f.Find("big")
	content := strings.Repeat("0123456789abcdef", 1<<16)
	for name, c := range map[string]struct {
		damage func(file string) error
		want   bool
	}{
		"right":        {func(string) error { return nil }, true},
		"a byte":       {flip, false},
		"cut off":      {func(file string) error { return os.Truncate(file, 3) }, false},
		"goes on":      {func(file string) error { return os.Truncate(file, 1<<21) }, false},
		"no file":      {func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, false},
		"a link to it": {func(file string) error { return errors.Join(os.Rename(file, file+".of"), os.Symlink(file+".of", file)) }, false},
		"removed":      {os.Remove, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, beside := newHost(t), t.TempDir()
			file := filepath.Join(beside, entry.Sum.String())
			write(t, file, content)
			if err := c.damage(file); err != nil {
				t.Fatal(err)
			}
			h.Store = h.WithExtraContents(beside)
			if got := h.holder(entry.Sum, entry.Size); (got == file) != c.want || !c.want && got != "" {
				t.Errorf("the content is in %q", got)
			}
			send(t, f, h)
			_, err := os.Stat(h.Path(entry.Sum))
			if travelled := err == nil; travelled == c.want || !h.Contains(f.ID()) {
				t.Errorf("it has travelled: %v; the store holds all: %v", travelled, h.Contains(f.ID()))
			}
		})
	}
}
