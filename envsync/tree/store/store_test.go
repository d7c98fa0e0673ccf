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

// host is a store to which Send has a direct connection, without a network.
type host struct {
	*Store
	t    *testing.T
	got  atomic.Int64                                             // bytes that arrived
	wrap func(in io.Reader, out io.Writer) (io.Reader, io.Writer) // nil: nothing is between
}

func newHost(t *testing.T) *host {
	return &host{Store: Open(filepath.Join(t.TempDir(), "files")), t: t}
}

// put implements tree.Target.Put for the host.
func (h *host) put(ctx context.Context, in io.Reader, out io.Writer) error {
	in = io.TeeReader(in, counter{&h.got})
	if h.wrap != nil {
		in, out = h.wrap(in, out)
	}
	return h.Serve(ctx, in, out, nil, nil)
}

// take calls tree.Download with this host as the source.
func (h *host) take(id tree.Sum, dir string) (*tree.Folder, error) {
	return tree.Download(h.t.Context(), func(ctx context.Context, out io.Writer) error { return h.Upload(ctx, id, out) }, id, dir)
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// noLeftovers fails the test if the store contains a temporary file.
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

// project creates a folder with files of several sizes, symbolic links and
// several permissions.
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
		// A scan of the built folder equals the original, except for the
		// owner's permissions, which are always set.
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

// Each content is sent once; after a change only the changed content is sent.
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

// No write in a built folder reaches the store, not even by root.
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

// Build leaves a folder that exists unchanged, because it belongs to a job.
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

// A content that another program has changed in the store is detected and sent
// again.
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
			// A test cannot create a file that is older than the last boot,
			// but a wrong modification time has the same effect.
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

// keeping changes a file in the store and restores its modification time, as a
// program could.
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

// flip inverts one byte of a file.
func flip(file string) error {
	content, err := os.ReadFile(file)
	if err == nil {
		content[len(content)/2] ^= 1
		err = os.WriteFile(file, content, 0o600)
	}
	return err
}

// Corrupt contents whose times look right are hashed when they are used. Build
// names and removes all of them at once, and the next Send brings them again.
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
				return // root can read the file, which is intact
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

// A cloned content is not read, so it is hashed at its first use on each day.
func TestClonedContentIsHashedOnceADay(t *testing.T) {
	f, h := scan(t, project(t)), newHost(t)
	send(t, f, h)
	made := clone
	t.Cleanup(func() { clone = made })
	clone = func(to, from int) error { // as if this file system supported clones
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
	h.build(f) // verifies the content and records today as the day
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

// Runs of zero bytes hardly add to what is sent, and use no disk space in the
// store or in the built folder.
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

// A manifest of which one byte has changed is sent again.
func TestCorruptManifestIsSentAgain(t *testing.T) {
	f, h := scan(t, project(t)), newHost(t)
	send(t, f, h)
	keeping(t, h.Path(f.ID()), flip)
	h.Store = Open(h.dir) // a new Store has no cached manifest
	send(t, f, h)
	h.Store = Open(h.dir)
	h.build(f)
}

// A truncated or corrupted stream leaves no partial file, and the next Send
// completes the store.
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

// If a host sends an invalid reply, or none, only this host fails.
func TestHostWithInvalidReplyIsNamed(t *testing.T) {
	dir := project(t)
	write(t, filepath.Join(dir, "ninth"), "") // nine pieces need a second byte in the reply
	f := scan(t, dir)
	good := newHost(t)
	for name, answer := range map[string]string{
		"its reply is invalid": "\xff\xff", "ended before it had all files": "\x01", "not confirmed": "\x00\x00no\n", "ended before": "",
	} {
		bad := talker{answer}
		to := append(targets(good), tree.Target{Name: "bad", Put: bad.put})
		if err := tree.Send(t.Context(), to, f, tree.SendOptions{}); err == nil || !strings.HasPrefix(err.Error(), "host bad: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("answer %q: %v, want %q", answer, err, name)
		}
		good.build(f)
	}
}

// talker is a host that sends a fixed reply.
type talker struct{ answer string }

func (h talker) put(_ context.Context, in io.Reader, out io.Writer) error {
	go io.Copy(io.Discard, in) // ends with the pipe
	_, err := io.WriteString(out, h.answer)
	return err
}

// If a file changes between Scan and Send, Send fails for all hosts with one
// error.
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
	// The second folder has all contents of the first one (the old train.py is
	// now pkg/same.py), so only the first manifest is removed.
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

// Prune removes nothing if it cannot read the manifest of a job, or if its
// context is cancelled.
func TestPruneStops(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	later := time.Now().Add(time.Hour)
	list, err := os.ReadFile(h.Path(f.ID()))
	if err == nil { // the corrupt manifest can still be decoded
		err = os.WriteFile(h.Path(f.ID()), bytes.ReplaceAll(list, []byte("train.py"), []byte("trail.py")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	anew := Open(h.dir) // a new Store has no cached manifest
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

// After a power cut a file may have the right size and times, and wrong
// content.
func TestContentOfAnEarlierBootIsHashed(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	booted := bootTime
	t.Cleanup(func() { bootTime = booted })
	bootTime = func() time.Time { return time.Now().Add(time.Minute) }
	if !h.Contains(f.ID()) {
		t.Error("right contents of an earlier boot are not used")
	}
	e, _ := f.Find("train.py")
	if err := errors.Join(os.WriteFile(h.Path(e.Sum), []byte("print(7)\n"), 0o600), os.Chtimes(h.Path(e.Sum), verifiedEpoch, verifiedEpoch)); err != nil {
		t.Fatal(err)
	}
	if h.Contains(f.ID()) {
		t.Error("a damaged content of an earlier boot is used")
	}
}

// later calls f with a clock that is ahead by the duration by. The kernel
// still sets the change times of files by the real clock.
func later(t *testing.T, by time.Duration, f func(t *testing.T)) {
	t.Helper()
	until := time.Now().Add(by).Round(0) // Round strips the monotonic clock reading, which a synctest bubble does not have
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(until)) // takes no time
		f(t)
	})
}

// A use of a content updates its change time, so that Prune does not remove it
// while a launch needs it.
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
	for tick := filepath.Join(t.TempDir(), "tick"); ; { // wait until the kernel's clock for change times has advanced
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

// A host that joins a job gets the folder that another host has.
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

// After it has received all files, Take waits until the host's command exits,
// instead of cancelling it.
func TestTakeWaitsForTheCommandToExit(t *testing.T) {
	for _, dir := range []string{project(t), t.TempDir()} {
		f, h := scan(t, dir), newHost(t)
		send(t, f, h)
		synctest.Test(t, func(t *testing.T) {
			if _, err := tree.Download(t.Context(), func(ctx context.Context, out io.Writer) error {
				err := h.Upload(ctx, f.ID(), out)
				synctest.Wait() // wait until Take has read the output
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

// Contains reports true only if the store has the manifest and all contents,
// unchanged.
func TestHolds(t *testing.T) {
	dir, h := project(t), newHost(t)
	f, err := tree.Scan(t.Context(), dir, tree.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h.Contains(f.ID()) {
		t.Error("an empty store holds it")
	}
	if err := tree.Send(t.Context(), targets(h), f, tree.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	if !h.Contains(f.ID()) || h.Contains(tree.Sum{1}) {
		t.Error("after it was sent")
	}
	content := h.Path(f.Contents()[0].Sum)
	if err := os.WriteFile(content, []byte("another one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h.Contains(f.ID()) {
		t.Error("with a content that has changed")
	}
}
