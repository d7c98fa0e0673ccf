//go:build linux

package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
)

// host is a store that Send reaches without a network.
type host struct {
	*Store
	t    *testing.T
	got  atomic.Int64                                             // bytes that arrived
	wrap func(in io.Reader, out io.Writer) (io.Reader, io.Writer) // nil: nothing is between
}

func newHost(t *testing.T) *host {
	return &host{Store: Open(filepath.Join(t.TempDir(), "files")), t: t}
}

// put is tree.Target.Put of the host.
func (h *host) put(ctx context.Context, in io.Reader, out io.Writer) error {
	in = io.TeeReader(in, counter{&h.got})
	if h.wrap != nil {
		in, out = h.wrap(in, out)
	}
	return h.Serve(ctx, in, out, nil, nil)
}

// take is tree.Take from the host.
func (h *host) take(id tree.Sum, dir string) (*tree.Folder, error) {
	return tree.Take(h.t.Context(), func(ctx context.Context, out io.Writer) error { return h.Give(ctx, id, out) }, id, dir)
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// noLeftovers fails the test if a file was left half written.
func (h *host) noLeftovers() {
	h.t.Helper()
	entries, err := os.ReadDir(h.incoming())
	if err != nil || len(entries) > 0 {
		h.t.Errorf("left in the folder of incoming files: %v, %v", entries, err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// project makes a folder with files of several sizes, links and modes.
func project(t *testing.T) string {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "train.py"), "print(1)\n")
	write(t, filepath.Join(dir, "pkg/same.py"), "print(1)\n")
	write(t, filepath.Join(dir, "pkg/empty"), "")
	write(t, filepath.Join(dir, "big"), strings.Repeat("0123456789abcdef", 1<<16))
	write(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../train.py", filepath.Join(dir, "pkg", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "hollow"), 0o500); err != nil {
		t.Fatal(err)
	}
	return dir
}

func scan(t *testing.T, dir string) *tree.Folder {
	t.Helper()
	f, err := tree.Scan(t.Context(), dir, tree.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func send(t *testing.T, f *tree.Folder, hosts ...*host) {
	t.Helper()
	if err := tree.Send(t.Context(), targets(hosts...), f, tree.SendOptions{}); err != nil {
		t.Fatal(err)
	}
}

func targets(hosts ...*host) (to []tree.Target) {
	for i, h := range hosts {
		to = append(to, tree.Target{Name: "h" + string(rune('1'+i)), Put: h.put})
	}
	return to
}

func (h *host) build(f *tree.Folder) string {
	h.t.Helper()
	dir := filepath.Join(h.t.TempDir(), "work")
	if err := h.Build(h.t.Context(), f.ID(), dir, nil); err != nil {
		h.t.Fatal(err)
	}
	return dir
}

func TestSentFolderEqualsTheOriginal(t *testing.T) {
	f := scan(t, project(t))
	a, b := newHost(t), newHost(t)
	send(t, f, a, b)
	for _, h := range []*host{a, b} {
		h.noLeftovers()
		dir := h.build(f)
		// Read again it is the same folder, but for the bits that its owner needs.
		back := scan(t, dir)
		for i, e := range f.Entries {
			if e.Path == "hollow" {
				e.Mode |= 0o700
			}
			if i >= len(back.Entries) || back.Entries[i] != e {
				t.Fatalf("entry %d is %v, want %v", i, back.Entries[min(i, len(back.Entries)-1)], e)
			}
		}
		if len(back.Entries) != len(f.Entries) {
			t.Errorf("%d entries, want %d", len(back.Entries), len(f.Entries))
		}
	}
}

// Contents travel once, and changes travel alone.
func TestOnlyChangedFilesAreSent(t *testing.T) {
	dir := project(t)
	h := newHost(t)
	f := scan(t, dir)
	send(t, f, h)
	manifest := int64(len(f.Encode()))
	for _, change := range []struct {
		content string
		most    int64 // bytes beyond the manifest
	}{{"print(1)\n", 8}, {"print(2)\n", 200}} {
		write(t, filepath.Join(dir, "train.py"), change.content)
		h.got.Store(0)
		f = scan(t, dir)
		send(t, f, h)
		if got := h.got.Load() - manifest; got > change.most {
			t.Errorf("%d bytes travelled beyond the manifest, want at most %d", got, change.most)
		}
		got, err := os.ReadFile(filepath.Join(h.build(f), "train.py"))
		if err != nil || string(got) != change.content {
			t.Errorf("train.py is %q, %v; want %q", got, err, change.content)
		}
	}
}

// Nothing that is done in a folder reaches the store, not even by root.
func TestWritesInBuiltFolderDoNotReachTheStore(t *testing.T) {
	f := scan(t, project(t))
	h := newHost(t)
	send(t, f, h)
	dir := h.build(f)
	for _, name := range []string{"train.py", "big"} {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString("broken"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(file.Chmod(0o777), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if back := scan(t, h.build(f)); back.ID() == scan(t, dir).ID() {
		t.Error("a new folder has what was written in the old one")
	}
	if got, err := os.ReadFile(filepath.Join(h.build(f), "train.py")); err != nil || string(got) != "print(1)\n" {
		t.Errorf("train.py is %q, %v", got, err)
	}
}

// A folder that exists is that of a job, and stays as the job has left it.
func TestBuildLeavesAFolderThatExists(t *testing.T) {
	f, h := scan(t, project(t)), newHost(t)
	send(t, f, h)
	dir := h.build(f)
	write(t, filepath.Join(dir, "made"), "by the job")
	before := scan(t, dir)
	if err := h.Build(t.Context(), f.ID(), dir, nil); err != nil || scan(t, dir).ID() != before.ID() {
		t.Errorf("%v, or the folder has changed", err)
	}
}

// A content that somebody changed in the store is found out and sent again.
func TestContentChangedInTheStoreIsSentAgain(t *testing.T) {
	f := scan(t, project(t))
	entry, _ := f.Find("train.py")
	for name, damage := range map[string]func(file string) error{
		"written to": func(file string) error { return os.WriteFile(file, []byte("print(7)\n"), 0o600) },
		"cut off":    func(file string) error { return os.Truncate(file, 3) },
		"removed":    os.Remove,
		"cut off, with its time": func(file string) error {
			return errors.Join(os.Truncate(file, 3), os.Chtimes(file, verifiedEpoch, verifiedEpoch))
		},
		"of an earlier boot": func(file string) error {
			// The times of a file that was written before the boot cannot be made
			// here, but an untrusted time takes the same way.
			return errors.Join(os.WriteFile(file, []byte("print(7)\n"), 0o600), os.Chtimes(file, time.Time{}, verifiedEpoch.Add(-time.Second)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			send(t, f, h)
			if err := damage(h.Path(entry.Sum)); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "work")
			if err := h.Build(t.Context(), f.ID(), dir, nil); err == nil || !strings.Contains(err.Error(), "train.py") && !strings.Contains(err.Error(), "same.py") {
				t.Errorf("built with a damaged content: %v", err)
			}
			if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
				t.Errorf("left after the failure: %v, %v", left, err)
			}
			send(t, f, h)
			if got, err := os.ReadFile(filepath.Join(h.build(f), "train.py")); err != nil || string(got) != "print(1)\n" {
				t.Errorf("train.py is %q, %v", got, err)
			}
		})
	}
}

// keeping changes a file in the store, and keeps its time of modification, as a program may that
// writes to it by another name.
func keeping(t *testing.T, file string, change func(file string) error) {
	t.Helper()
	before, err := os.Stat(file)
	if err == nil {
		err = errors.Join(change(file), os.Chtimes(file, before.ModTime(), before.ModTime()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes one byte of a file.
func flip(file string) error {
	content, err := os.ReadFile(file)
	if err == nil {
		content[len(content)/2] ^= 1
		err = os.WriteFile(file, content, 0o600)
	}
	return err
}

// Contents of which the times tell nothing wrong are hashed as they are used: what is wrong is named
// and removed, and the next Send brings it. All is found at once.
func TestCorruptContentIsRemovedAndSentAgain(t *testing.T) {
	f := scan(t, project(t))
	for name, damage := range map[string]func(file string) error{
		"a byte":    flip,
		"cut off":   func(file string) error { return os.Truncate(file, 3) },
		"no file":   func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"a link":    func(file string) error { return errors.Join(os.Remove(file), os.Symlink("/etc/hostname", file)) },
		"no access": func(file string) error { return os.Chmod(file, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no access" && os.Geteuid() == 0 {
				return // root reads it, and it is right
			}
			h := newHost(t)
			send(t, f, h)
			var want []string
			for _, path := range []string{"big", "run.sh"} {
				entry, _ := f.Find(path)
				if name == "a link" {
					if err := damage(h.Path(entry.Sum)); err != nil {
						t.Fatal(err)
					}
				} else {
					keeping(t, h.Path(entry.Sum), damage)
				}
				want = append(want, path)
			}
			dir := filepath.Join(t.TempDir(), "work")
			var damaged *tree.DamagedError
			if err := h.Build(t.Context(), f.ID(), dir, nil); !errors.As(err, &damaged) || !slices.Equal(damaged.Files, want) || damaged.Dir != h.dir {
				t.Fatalf("%v, want damaged %q", err, want)
			}
			if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
				t.Errorf("left after the failure: %v, %v", left, err)
			}
			send(t, f, h)
			back := scan(t, h.build(f))
			for _, path := range want {
				got, _ := back.Find(path)
				if sent, _ := f.Find(path); got.Sum != sent.Sum {
					t.Errorf("%s is not right after it was sent again", path)
				}
			}
		})
	}
}

// What is cloned is not read. So it is hashed on the first use of a day.
func TestClonedContentIsHashedOnceADay(t *testing.T) {
	f, h := scan(t, project(t)), newHost(t)
	send(t, f, h)
	made := clone
	t.Cleanup(func() { clone = made })
	clone = func(to, from int) error { // as if this file system could
		var info unix.Stat_t
		if err := unix.Fstat(from, &info); err != nil {
			return err
		}
		content := make([]byte, info.Size)
		if _, err := unix.Pread(from, content, 0); err != nil {
			return err
		}
		return writeAll(to, content)
	}
	entry, _ := f.Find("big")
	keeping(t, h.Path(entry.Sum), flip)
	h.build(f) // it was found right today
	today := verifiedTime(time.Now())
	yesterday := today.Add(-time.Second)
	if err := os.Chtimes(h.Path(entry.Sum), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	var damaged *tree.DamagedError
	if err := h.Build(t.Context(), f.ID(), filepath.Join(t.TempDir(), "work"), nil); !errors.As(err, &damaged) {
		t.Fatalf("on the next day: %v", err)
	}
	send(t, f, h)
	if err := os.Chtimes(h.Path(entry.Sum), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	h.build(f)
	if info, err := os.Stat(h.Path(entry.Sum)); err != nil || !info.ModTime().Equal(today) {
		t.Errorf("found right today, and its time is %v, %v", info.ModTime(), err)
	}
}

// Zeros of a file hardly travel, and take room neither in the store nor in the folder that is made of it.
func TestZerosTakeNoRoom(t *testing.T) {
	dir, h := t.TempDir(), newHost(t)
	const mega = 1 << 20
	data := filepath.Join(dir, "data")
	write(t, data, string(large(10, mega)))
	if err := os.Truncate(data, 64*mega); err != nil {
		t.Fatal(err)
	}
	f := scan(t, dir)
	send(t, f, h)
	if got := h.got.Load(); got > 2*mega {
		t.Errorf("%d bytes have travelled", got)
	}
	entry, _ := f.Find("data")
	work, taken := h.build(f), t.TempDir()
	other, err := h.take(f.ID(), taken)
	if err != nil {
		t.Fatal(err)
	}
	if got := scan(t, work); got.ID() != f.ID() || other.ID() != f.ID() {
		t.Error("the folder has another content")
	}
	copies, err := filepath.Glob(filepath.Join(taken, "*"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("taken are %q, %v", copies, err)
	}
	for _, file := range []string{h.Path(entry.Sum), filepath.Join(work, "data"), copies[0]} {
		var info unix.Stat_t
		if err := unix.Stat(file, &info); err != nil || info.Size != 64*mega || info.Blocks*512 > 2*mega {
			t.Errorf("%s has %d bytes, of which %d take room: %v", file, info.Size, info.Blocks*512, err)
		}
	}
}

// A list of files of which a byte has changed is sent again.
func TestCorruptManifestIsSentAgain(t *testing.T) {
	f, h := scan(t, project(t)), newHost(t)
	send(t, f, h)
	keeping(t, h.Path(f.ID()), flip)
	h.Store = Open(h.dir) // which has read no list yet
	send(t, f, h)
	h.Store = Open(h.dir)
	h.build(f)
}

// What is cut off or damaged on the way leaves nothing half written, and the next
// try completes it.
func TestBrokenStreamStoresNothing(t *testing.T) {
	f := scan(t, project(t))
	manifest := len(f.Encode())
	for _, after := range []int{0, 1, 20, manifest, manifest + 10, manifest + 60, manifest + 120} {
		h := newHost(t)
		h.wrap = func(in io.Reader, out io.Writer) (io.Reader, io.Writer) { return io.LimitReader(in, int64(after)), out }
		if err := tree.Send(t.Context(), targets(h), f, tree.SendOptions{}); err == nil || !strings.HasPrefix(err.Error(), "host h1: ") {
			t.Errorf("cut after %d bytes: %v, want an error that names the host", after, err)
		}
		if after >= manifest+10 {
			h.noLeftovers()
		}
		h.wrap = nil
		send(t, f, h)
		h.build(f)
	}
}

// A host that answers nonsense, or nothing, fails alone.
func TestHostWithInvalidReplyIsNamed(t *testing.T) {
	dir := project(t)
	write(t, filepath.Join(dir, "ninth"), "") // one piece more than a byte of an answer has bits
	f := scan(t, dir)
	good := newHost(t)
	for name, answer := range map[string]string{
		"its answer is damaged": "\xff\xff", "ended before it had all files": "\x01", "not confirmed": "\x00\x00no\n", "ended before": "",
	} {
		bad := talker{answer}
		to := append(targets(good), tree.Target{Name: "bad", Put: bad.put})
		if err := tree.Send(t.Context(), to, f, tree.SendOptions{}); err == nil || !strings.HasPrefix(err.Error(), "host bad: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("answer %q: %v, want %q", answer, err, name)
		}
		good.build(f)
	}
}

// talker answers the same whatever it is sent.
type talker struct{ answer string }

func (h talker) put(_ context.Context, in io.Reader, out io.Writer) error {
	go io.Copy(io.Discard, in) // ends with the pipe
	_, err := io.WriteString(out, h.answer)
	return err
}

// A file that changes between Scan and Send stops the launch, with one error.
func TestFileThatChangesDuringSendFailsAllHosts(t *testing.T) {
	dir := project(t)
	f := scan(t, dir)
	for _, content := range []string{"#!/bin/xx\n", "longer than it was\n", ""} {
		write(t, filepath.Join(dir, "run.sh"), content)
		a, b := newHost(t), newHost(t)
		err := tree.Send(t.Context(), targets(a, b), f, tree.SendOptions{})
		if want := "run.sh: it changed while it was read"; err == nil || strings.Count(err.Error(), want) != 1 || !strings.HasPrefix(err.Error(), "hosts h1 and h2: ") {
			t.Errorf("%v, want one %q", err, want)
		}
		for _, h := range []*host{a, b} {
			h.noLeftovers()
			if _, err := h.Manifest(f.ID()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the host has a list of files that it does not have: %v", err)
			}
		}
	}
}

func TestPrune(t *testing.T) {
	dir := project(t)
	h := newHost(t)
	f := scan(t, dir)
	send(t, f, h)
	write(t, filepath.Join(dir, "train.py"), "print(2)\n")
	next := scan(t, dir)
	send(t, next, h)
	later := time.Now().Add(time.Hour)
	var removed int64
	prune := func(before time.Time, keep ...tree.Sum) {
		t.Helper()
		removed = 0
		if err := h.Prune(t.Context(), keep, before, func(path string, _ int64) error { removed++; return os.Remove(path) }); err != nil {
			t.Fatal(err)
		}
	}
	if prune(time.Now().Add(-time.Hour)); removed != 0 {
		t.Errorf("%d contents were removed before their time", removed)
	}
	// Of the first folder only its manifest is not part of the second one: the old
	// train.py is pkg/same.py too.
	if prune(later, next.ID()); removed != 1 {
		t.Errorf("%d contents were removed, want the first manifest", removed)
	}
	h.build(next)
	if prune(later); removed == 0 {
		t.Error("nothing was removed that no job uses")
	}
	if err := h.Build(t.Context(), next.ID(), filepath.Join(t.TempDir(), "work"), nil); err == nil {
		t.Error("built from what was removed")
	}
}

// Prune removes nothing if it cannot know what a job uses, or if it is told to end.
func TestPruneStops(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	later := time.Now().Add(time.Hour)
	list, err := os.ReadFile(h.Path(f.ID()))
	if err == nil { // it can be decoded still
		err = os.WriteFile(h.Path(f.ID()), bytes.ReplaceAll(list, []byte("train.py"), []byte("trail.py")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	anew := Open(h.dir) // which knows no list yet
	if err := anew.Prune(t.Context(), []tree.Sum{f.ID()}, later, func(path string, _ int64) error { t.Errorf("%s is removed", path); return nil }); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("with a damaged list of files: %v", err)
	}
	h = newHost(t)
	write(t, filepath.Join(h.incoming(), "a"), "") // two in one folder
	write(t, filepath.Join(h.incoming(), "b"), "")
	ends, cancel := context.WithCancel(t.Context())
	removed := 0
	if err := h.Prune(ends, nil, later, func(string, int64) error { removed++; cancel(); return nil }); removed != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("told to end: %d files were removed, %v", removed, err)
	}
}

// A power cut may leave a content with its size and times, and other bytes.
func TestContentOfAnEarlierBootIsHashed(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	booted := bootTime
	t.Cleanup(func() { bootTime = booted })
	bootTime = func() time.Time { return time.Now().Add(time.Minute) }
	if !h.Holds(f.ID()) {
		t.Error("right contents of an earlier boot are not used")
	}
	e, _ := f.Find("train.py")
	if err := errors.Join(os.WriteFile(h.Path(e.Sum), []byte("print(7)\n"), 0o600), os.Chtimes(h.Path(e.Sum), verifiedEpoch, verifiedEpoch)); err != nil {
		t.Fatal(err)
	}
	if h.Holds(f.ID()) {
		t.Error("a damaged content of an earlier boot is used")
	}
}

// later calls f at a time that is so much later than now. Only the clock of f goes wrong: the
// change times of files are those of the kernel.
func later(t *testing.T, by time.Duration, f func(t *testing.T)) {
	t.Helper()
	until := time.Now().Add(by).Round(0) // without the monotonic clock, which the bubble has not
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(until)) // takes no time
		f(t)
	})
}

// A content that is used again counts as used now, so that Prune leaves it to a launch that
// has just found it.
func TestUseUpdatesChangeTime(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	e, _ := f.Find("big")
	of := func(file string) time.Time {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return changeTime(info)
	}
	changed := func() time.Time { return of(h.Path(e.Sum)) }
	sent := changed()
	for tick := filepath.Join(t.TempDir(), "tick"); ; { // until what changes does so later
		if write(t, tick, ""); of(tick).After(sent) {
			break
		}
	}
	later(t, useInterval+time.Minute, func(t *testing.T) {
		if !h.has(e.Sum, e.Size) {
			t.Error("the content is not used")
		}
	})
	if now := changed(); !now.After(sent) {
		t.Errorf("last used at %s as Prune sees it, want after %s", now, sent)
	}
}

// A host that joins gets what another one has.
func TestTakenFolderCanBeSentToAnotherHost(t *testing.T) {
	f := scan(t, project(t))
	a, b := newHost(t), newHost(t)
	send(t, f, a)
	dir := t.TempDir()
	taken, err := a.take(f.ID(), dir)
	if err != nil {
		t.Fatal(err)
	}
	send(t, taken, b)
	if back := scan(t, b.build(f)); back.Entries[0] != f.Entries[0] || len(back.Entries) != len(f.Entries) {
		t.Errorf("built %v, want %v", back.Entries, f.Entries)
	}
	entry, _ := f.Find("train.py")
	if err := os.WriteFile(a.Path(entry.Sum), []byte("print(7)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.take(f.ID(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "same.py") {
		t.Errorf("a damaged content was taken: %v", err)
	}
	if _, err := a.take(tree.Sum{1}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no manifest: %v", err)
	}
}

// Whoever has all files waits until the host has ended: it is not given up.
func TestTakeWaitsForTheCommandToExit(t *testing.T) {
	for _, dir := range []string{project(t), t.TempDir()} {
		f, h := scan(t, dir), newHost(t)
		send(t, f, h)
		synctest.Test(t, func(t *testing.T) {
			if _, err := tree.Take(t.Context(), func(ctx context.Context, out io.Writer) error {
				err := h.Give(ctx, f.ID(), out)
				synctest.Wait() // until Take has read that
				if err != nil || ctx.Err() != nil {
					t.Errorf("the host was given up: %v, %v", err, ctx.Err())
				}
				return err
			}, f.ID(), t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store holds a folder if it has its list and all contents, as they were.
func TestHolds(t *testing.T) {
	dir, h := project(t), newHost(t)
	f, err := tree.Scan(t.Context(), dir, tree.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h.Holds(f.ID()) {
		t.Error("an empty store holds it")
	}
	if err := tree.Send(t.Context(), targets(h), f, tree.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	if !h.Holds(f.ID()) || h.Holds(tree.Sum{1}) {
		t.Error("after it was sent")
	}
	content := h.Path(f.Contents()[0].Sum)
	if err := os.WriteFile(content, []byte("another one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h.Holds(f.ID()) {
		t.Error("with a content that has changed")
	}
}
