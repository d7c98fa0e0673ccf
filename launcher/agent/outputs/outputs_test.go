//go:build linux

package outputs

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestLeadsTo(t *testing.T) {
	for _, c := range []struct {
		pattern, dir string
		want         bool
	}{
		{"*.pt", "runs", false}, {"*", "runs", true}, {"runs", "runs", true}, {"runs", "runs/a/b", true}, {"runs", "run", false},
		{"runs/*.pt", "runs", true}, {"runs/*.pt", "runs/a", false}, {"runs/*/x", "runs/a", true}, {"runs/*/x", "runs/a/b", false},
		{"**/x", "a/b/c", true}, {"a/**", "b", false}, {"a/**/x", "a/b", true}, {"{a/b,c}/x", "a/b", true}, {`\{a/x`, "b", true},
	} {
		if got := leadsTo(strings.Split(c.pattern, "/"), strings.Split(c.dir, "/")); got != c.want {
			t.Errorf("leadsTo(%q, %q) = %v", c.pattern, c.dir, got)
		}
	}
}

// job creates the folder of a job on a host. worker:0 has run in a folder of
// its own, and all tasks of the host in the folder work.
func job(t *testing.T, patterns ...string) jobfolder.Folder {
	t.Helper()
	f := jobfolder.Folder(filepath.Join(t.TempDir(), "jobs", "j", "h"))
	own, work := filepath.Join(f.Tasks(), "worker-0"), filepath.Join(string(f), "work")
	var all []protocol.Output
	for _, p := range patterns {
		all = append(all, protocol.Output{Pattern: p})
	}
	if err := errors.Join(os.MkdirAll(own, 0o700), os.MkdirAll(work, 0o700), f.WriteState(protocol.State{Products: protocol.Products{Outputs: all}}),
		f.RecordTaskFolder(own), f.RecordTaskFolder(work), f.RecordTaskFolder(own), f.RecordTaskFolder("/no/such")); err != nil {
		t.Fatal(err)
	}
	return f
}

func put(t *testing.T, f jobfolder.Folder, name, text string) {
	t.Helper()
	path := filepath.Join(string(f), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// listed returns the listed outputs, each as one word that includes its fault.
func listed(t *testing.T, f jobfolder.Folder) (all []string, list []protocol.HostOutput) {
	t.Helper()
	if err := List(f, protocol.Wanted{}, func(o protocol.HostOutput) error {
		word := fmt.Sprintf("%s/%s %d", o.Place, o.Name, o.Size)
		if o.Damage != "" {
			word = fmt.Sprintf("%s/%s: %s", o.Place, o.Name, o.Damage)
		}
		all, list = append(all, word), append(list, o)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all, list
}

func TestList(t *testing.T) {
	f := job(t, "*.pt", "deep/**/x")
	put(t, f, "tasks/worker-0/a.pt", "four")
	put(t, f, "tasks/worker-0/b.txt", "no")
	put(t, f, "tasks/worker-0/.dot.pt", "no")
	put(t, f, "tasks/worker-0/sub.pt/in", "it is in a folder that is named")
	put(t, f, "tasks/worker-0/new\nline.pt", "")
	put(t, f, "work/deep/1/2/x", "1")
	put(t, f, "work/deep/1/2/y", "no")
	put(t, f, "secret", "no")
	for link, to := range map[string]string{"good.pt": "a.pt", "out.pt": "../../secret", "gone.pt": "nothing", "dir.pt": "sub.pt"} {
		if err := os.Symlink(to, filepath.Join(f.Tasks(), "worker-0", link)); err != nil {
			t.Fatal(err)
		}
	}
	const leads = "it is a symbolic link out of the folder, or to a file that does not exist"
	want := []string{"worker-0/a.pt 4", "worker-0/dir.pt: it is not a file, but a link to a folder", "worker-0/gone.pt: " + leads, "worker-0/good.pt 4",
		`worker-0/new\x0aline.pt 0`, "worker-0/out.pt: " + leads, "worker-0/sub.pt/in 31", "shared/deep/1/2/x 1"}
	if got, _ := listed(t, f); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, ok := range map[string]bool{"a.pt": true, "good.pt": true, "out.pt": false, "b.txt": false, "../../secret": false, "sub.pt": false, "/etc/passwd": false} {
		file, err := Open(f, protocol.Wanted{}, "worker-0", name)
		if (err == nil) != ok {
			t.Errorf("open %s: %v", name, err)
		}
		if err == nil {
			file.Close() // only read
		}
	}
}

// Files and folders with unusual names are listed like others, with their
// names escaped.
func TestUnusualNamesAreEscaped(t *testing.T) {
	f := job(t, "*.pt")
	long := strings.Repeat(strings.Repeat("a", 200)+"/", 5) + "x"
	names := []string{"caf\xe9.pt", `caf\xe9.pt`, "café.pt", "new\nline.pt", "fold\xff\ner/b.txt"}
	for _, name := range append(names, long) {
		put(t, f, "tasks/worker-0/"+name, name)
	}
	put(t, f, "tasks/worker-0/.cache/\xff", "a dot at the top")
	check := func(want string) {
		t.Helper()
		named, made, err := Unfetched(f)
		if got := fmt.Sprint(named.Files, made.Files, err); got != want {
			t.Errorf("unfetched: %s, want %s", got, want)
		}
	}
	check("4 2 <nil>")
	want := protocol.Wanted{Made: true}
	var all, lost []protocol.HostOutput
	if err := List(f, want, func(o protocol.HostOutput) error {
		if o.Damage != "" {
			lost = append(lost, o)
			return nil
		}
		all = append(all, o)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(lost) != 1 || !lost[0].Lost || lost[0].Damage != "its name is longer than 1000 bytes" || !strings.HasPrefix(lost[0].Name, "aaa") {
		t.Errorf("cannot be fetched: %+v", lost)
	}
	var listed []string
	for _, o := range all {
		listed = append(listed, o.Path())
		file, err := Open(f, want, o.Place, o.Name)
		if err != nil {
			t.Errorf("%s: %v", o.Name, err)
			continue
		}
		if text, err := io.ReadAll(file); err != nil || string(text) != o.Path() {
			t.Errorf("%s is %q, %v", o.Name, text, err)
		}
		file.Close() // only read
	}
	slices.Sort(listed)
	slices.Sort(names)
	if !slices.Equal(listed, names) {
		t.Errorf("got %q, want %q", listed, names)
	}
	for _, name := range []string{"caf\xe9.pt", `\x6eew\x0aline.pt`, `\x2e\x2e/x`} {
		if file, err := Open(f, want, "worker-0", name); err == nil {
			file.Close() // only read
			t.Errorf("%q was opened, which List does not name", name)
		}
	}
	if err := RecordFetched(f, all); err != nil {
		t.Fatal(err)
	}
	check("0 1 <nil>")
}

// An unreadable folder may contain outputs, so it is listed with its fault.
// The same goes for a folder that is nested too deeply for a path to its
// files.
func TestUnreadableFoldersAreListedAsDamaged(t *testing.T) {
	withoutPrivileges(t)
	f := job(t, "runs/*.pt")
	put(t, f, "tasks/worker-0/runs/a.pt", "four")
	runs, deep := filepath.Join(f.Tasks(), "worker-0", "runs"), strings.Repeat(strings.Repeat("d", 200)+"/", 21)
	work, err := os.OpenRoot(f.Work())
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close() // only its files count
	if err := errors.Join(os.Chmod(runs, 0), work.MkdirAll(deep, 0o700), work.WriteFile(deep+"x", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(runs, 0o700) // so that the test's folder can be removed
	if named, made, err := Unfetched(f); err != nil || named.Files+made.Files != 2 {
		t.Errorf("%+v, %+v, %v", named, made, err)
	}
	if got, list := listed(t, f); len(got) != 1 || !list[0].Lost || !strings.HasPrefix(got[0], "worker-0/runs: ") {
		t.Errorf("%q", got)
	}
}

// If a file's times cannot be read, it counts as new, unless the file no
// longer exists.
func TestIsNew(t *testing.T) {
	for err, want := range map[error]bool{fs.ErrPermission: true, fs.ErrNotExist: false} {
		if got := (place{}).isNew(unseen{err}); got != want {
			t.Errorf("%v: new %v", err, got)
		}
	}
}

// unseen is a directory entry whose Info returns an error.
type unseen struct{ err error }

func (unseen) Name() string                 { return "unseen" }
func (unseen) IsDir() bool                  { return false }
func (unseen) Type() fs.FileMode            { return 0 }
func (u unseen) Info() (fs.FileInfo, error) { return nil, u.err }

// withoutPrivileges removes root's capability to read all files from the
// thread of this test.
func withoutPrivileges(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked, so the thread ends with the test
	header, rights := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &rights[0]); err != nil {
		t.Fatal(err)
	}
	rights[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&header, &rights[0]); err != nil {
		t.Fatal(err)
	}
}

func TestUnfetched(t *testing.T) {
	f := job(t, "*.pt")
	put(t, f, "tasks/worker-0/a.pt", "four")
	put(t, f, "work/b.pt", "two")
	outside := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "c.pt"), nil, 0o600), f.RecordTaskFolder(outside)); err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		named, _, err := Unfetched(f)
		if got := fmt.Sprint(named.Files, named.Bytes, err); got != want {
			t.Errorf("unfetched: %s, want %s", got, want)
		}
	}
	check("2 7 <nil>")
	_, list := listed(t, f)
	if err := RecordFetched(f, list[:1]); err != nil {
		t.Fatal(err)
	}
	check("1 3 <nil>")
	if err := RecordFetched(f, list[1:]); err != nil {
		t.Fatal(err)
	}
	check("0 0 <nil>")
	put(t, f, "tasks/worker-0/a.pt", "longer") // written again
	check("1 6 <nil>")
}

// A file counts as fetched only if it has not changed or moved since. plx
// prune may remove fetched files.
func TestChangedFileCountsAsUnfetched(t *testing.T) {
	f := job(t, "*.pt")
	set := func(name, text string, modified time.Time) {
		t.Helper()
		put(t, f, name, text)
		if err := os.Chtimes(filepath.Join(string(f), name), modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want int) {
		t.Helper()
		if named, _, err := Unfetched(f); err != nil || named.Files != want {
			t.Errorf("%s: %+v, %v, want %d", what, named, err, want)
		}
	}
	const file = "tasks/worker-0/a.pt"
	then := time.Now().Add(-time.Hour)
	set(file, "four", then)
	if err := os.Symlink("nothing", filepath.Join(f.Tasks(), "worker-0", "gone.pt")); err != nil {
		t.Fatal(err)
	}
	check("a file, and a link that cannot be fetched", 1)
	_, list := listed(t, f)
	if err := RecordFetched(f, list); err != nil {
		t.Fatal(err)
	}
	check("fetched", 0)
	set(file, "FOUR", then.Add(time.Second))
	check("written again, as long as before", 1)
	set(file, "longer", then)
	check("written again, with its time set back", 1)
	set(file, "four", then)
	set("work/a.pt", "four", then)
	check("one of the same name in another folder", 1)
}

// A file that --workdir has sent is an output only if the job has changed it.
// In a folder of the user, only files that match a pattern are outputs.
func TestWorkdirFilesAreOutputsOnlyIfChanged(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	f := job(t)
	var sent tree.Manifest
	for _, name := range []string{"changed", "longer", "same", "s\xe1me"} {
		sent.Entries = append(sent.Entries, tree.Entry{Path: name, Kind: tree.File, Mode: 0o600, Size: 4, Sum: sha256.Sum256([]byte("sent"))})
	}
	id := tree.Sum(sha256.Sum256(sent.Encode()))
	files, err := jobfolder.Files()
	if err != nil {
		t.Fatal(err)
	}
	outside, list := t.TempDir(), files.Path(id)
	if err := errors.Join(os.MkdirAll(filepath.Dir(list), 0o700), os.WriteFile(list, sent.Encode(), 0o600), f.WriteState(protocol.State{Products: protocol.Products{Workdir: id.String()}}),
		f.RecordTaskFolder(outside), os.WriteFile(filepath.Join(outside, "theirs"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"same": "sent", "s\xe1me": "sent", "changed": "SENT", "longer": "sent and more", "new": "1"} {
		put(t, f, "work/"+name, text)
	}
	var got []string
	if err := List(f, protocol.Wanted{Made: true}, func(o protocol.HostOutput) error { got = append(got, o.Name); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"changed", "longer", "new"}; !slices.Equal(got, want) {
		t.Errorf("the job has made %q, want %q", got, want)
	}
	if _, made, err := Unfetched(f); err != nil || made.Files != 3 {
		t.Errorf("%+v, %v", made, err)
	}
}

// A file that matches no pattern counts if the job has created or changed it.
// Older files, compiled Python, links, and names at the top that begin with a
// dot do not count.
func TestFilesMadeByJobAreListedWithoutPattern(t *testing.T) {
	f := job(t, "*.pt")
	before := filepath.Join(string(f), "tasks", "worker-1")
	if err := os.MkdirAll(before, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, f, "tasks/worker-1/unpacked", "by --copy")
	put(t, f, "tasks/worker-1/env/lib.py", "by --setup")
	if err := f.RecordTaskFolder(before); err != nil {
		t.Fatal(err)
	}
	// The file system's clock advances in ticks, so wait until the next one.
	begun, err := f.FirstStarts()
	if err != nil {
		t.Fatal(err)
	}
	begun[before]++
	if err := writeJSON(f, "begun.json", begun); err != nil {
		t.Fatal(err)
	}
	wait(t, f, begun[before])
	put(t, f, "tasks/worker-1/runs/log", "four")
	put(t, f, "tasks/worker-1/named.pt", "named")
	put(t, f, "tasks/worker-1/pkg/__pycache__/mod.pyc", "compiled")
	put(t, f, "tasks/worker-1/.cache/x", "dot")
	put(t, f, "tasks/worker-1/.dot", "dot")
	if err := os.Symlink("runs/log", filepath.Join(before, "link")); err != nil {
		t.Fatal(err)
	}
	count := func(want string) {
		t.Helper()
		named, made, err := Unfetched(f)
		if got := fmt.Sprint(named, made, err); got != want {
			t.Errorf("unfetched: %s, want %s", got, want)
		}
	}
	count("{1 5 0} {1 4 1} <nil>")
	list := func(want protocol.Wanted) (names []string, all []protocol.HostOutput) {
		t.Helper()
		if err := List(f, want, func(o protocol.HostOutput) error {
			names, all = append(names, o.Place+"/"+o.Name), append(all, o)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return names, all
	}
	if got, _ := list(protocol.Wanted{Patterns: []string{"**/lib.py"}}); !slices.Equal(got, []string{"worker-1/env/lib.py"}) {
		t.Errorf("by a pattern: %q", got)
	}
	got, all := list(protocol.Wanted{Made: true})
	if want := []string{"worker-1/named.pt", "worker-1/runs/log"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, _ := list(protocol.Wanted{Made: true, Patterns: []string{"**/none"}}); slices.ContainsFunc(got, func(name string) bool { return strings.HasSuffix(name, ".pyc") }) {
		t.Errorf("with a pattern that leads into all folders: %q", got)
	}
	file, err := Open(f, protocol.Wanted{Made: true}, "worker-1", "runs/log")
	if err != nil {
		t.Fatal(err)
	}
	file.Close() // only read
	if file, err = Open(f, protocol.Wanted{}, "worker-1", "runs/log"); err == nil {
		file.Close() // only read
		t.Error("a file was opened that nobody has asked for")
	}
	if err := RecordFetched(f, all); err != nil {
		t.Fatal(err)
	}
	count("{0 0 0} {0 0 0} <nil>")
}

func writeJSON(f jobfolder.Folder, name string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(string(f), name), text, 0o600)
}

// wait waits until the file system's clock has reached the time until.
func wait(t *testing.T, f jobfolder.Folder, until int64) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); {
		put(t, f, "clock", "")
		info, err := os.Stat(filepath.Join(string(f), "clock"))
		if err != nil {
			t.Fatal(err)
		}
		if info.ModTime().UnixNano() >= until {
			return
		}
	}
	t.Fatal("the clock stands still")
}
