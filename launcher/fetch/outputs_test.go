package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/holes"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

var patterns = []protocol.Output{{Pattern: "*.pt"}, {Pattern: "runs"}}

// ran creates the job's folder on every host, with the given files of
// worker:0.
func (h *homes) ran(files map[string]string) {
	h.t.Helper()
	state, err := json.Marshal(protocol.State{Job: "j", Folder: "h", Phase: protocol.Over, Products: protocol.Products{Outputs: patterns}})
	if err != nil {
		h.t.Fatal(err)
	}
	for i, dir := range h.dirs {
		h.agents[i].Folder = fmt.Sprintf("h%d", i+1)
		job := ".plx/jobs/j/" + h.agents[i].Folder
		h.write(i, job+"/state.json", string(state))
		place, err := json.Marshal([]string{filepath.Join(dir, job, "tasks/worker-0")})
		if err != nil {
			h.t.Fatal(err)
		}
		h.write(i, job+"/places.json", string(place))
		for name, text := range files {
			h.write(i, job+"/tasks/worker-0/"+name, text)
		}
	}
}

func (h *homes) fetchJob(dir string) error {
	h.t.Helper()
	h.said.Reset()
	v := console.NewPrinter(console.Terminal{Stderr: &h.said})
	return Job(h.t.Context(), Request{Hosts: h.agents, Name: "mnist", Dir: dir, Outputs: patterns, Printer: v})
}

func TestOutputs(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(map[string]string{"a.pt": "weights", "runs/x/y": "more", "runs/.z": "dots below are not at the top", "b.txt": "not named", ".c.pt": "dot"})
	h.write(1, ".plx/jobs/j/h2/tasks/worker-0/a.pt", "heights") // other content with the same length
	dir := t.TempDir()
	if err := h.fetchJob(dir); err != nil {
		t.Fatalf("%v; %s", err, h.said.String())
	}
	want := []string{"outputs/h1/worker-0/a.pt", "outputs/h1/worker-0/runs/.z", "outputs/h1/worker-0/runs/x/y",
		"outputs/h2/worker-0/a.pt", "outputs/h2/worker-0/runs/.z", "outputs/h2/worker-0/runs/x/y"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, want[3])); err != nil || string(text) != "heights" {
		t.Errorf("%q, %v", text, err)
	}
	h.says(fmt.Sprintf("fetched 6 outputs of j into %s/outputs: 6 files, 47 B", dir)) // equal files travel once
	if err := h.fetchJob(dir); err != nil {
		t.Errorf("again: %v", err)
	}
	h.says("6 files, 0 B, 6 of them there already")
	mine := filepath.Join(dir, want[0])
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.fetchJob(dir); err == nil || !strings.Contains(err.Error(), mine+" already exists with other content") {
		t.Errorf("%v", err)
	}
	if text, _ := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("it was replaced by %q", text)
	}
	// A link to a missing file, such as one to a disk that is not mounted.
	if err := errors.Join(os.Remove(mine), os.Symlink("elsewhere", mine)); err != nil {
		t.Fatal(err)
	}
	err := h.fetchJob(dir)
	if to, _ := os.Readlink(mine); err == nil || to != "elsewhere" {
		t.Errorf("it was replaced: %q, %v", to, err)
	}
}

// Files with unusual names are fetched under escaped names, which are printed.
// A second fetch recognises them. A file that cannot be fetched is an error
// each time.
func TestOutputsWithOddNames(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(map[string]string{"caf\xe9.pt": "latin", `caf\xe9.pt`: "escaped", "runs/new\nline/x": "folder", "a.pt": "weights"})
	dir := t.TempDir()
	want := []string{`a.pt`, `caf\x5cxe9.pt`, `caf\xe9.pt`, `runs/new\x0aline/x`}
	for i, name := range want {
		want[i] = "outputs/h1/worker-0/" + name
		want = append(want, "outputs/h2/worker-0/"+name)
	}
	for _, said := range []string{"fetched 8 outputs of j into " + dir + "/outputs: 8 files, 25 B\n", "8 files, 0 B, 8 of them there already\n"} {
		if err := h.fetchJob(dir); err != nil {
			t.Errorf("%v", err)
		}
		h.says(said)
		for _, name := range []string{`caf\xe9.pt`, `caf\x5cxe9.pt`, `runs/new\x0aline/x`} {
			h.says("hosts h[1-2]: output worker-0/" + name + `: its name is escaped: \xHH stands for a byte` + "\n")
		}
		if strings.Contains(h.said.String(), "a.pt") {
			t.Errorf("plx said %q", h.said.String())
		}
		if got := tree(t, dir); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, `outputs/h2/worker-0/caf\xe9.pt`)); err != nil || string(text) != "latin" {
		t.Errorf("%q, %v", text, err)
	}
	if line, _, err := Made(t.Context(), "j", h.agents); line != "" || err != nil {
		t.Errorf("left to fetch: %q, %v", line, err)
	}
	h.write(0, ".plx/jobs/j/h1/tasks/worker-0/runs/"+strings.Repeat(strings.Repeat("a", 200)+"/", 5)+"x", "")
	if err := os.Symlink("nothing", filepath.Join(h.dirs[0], ".plx/jobs/j/h1/tasks/worker-0/gone.pt")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.fetchJob(dir); err == nil || !strings.HasPrefix(err.Error(), "host h1: output worker-0/runs/aaa") || !strings.HasSuffix(err.Error(), " is not fetched: its name is longer than 1000 bytes") {
			t.Errorf("%v", err)
		}
		h.says("host h1: output worker-0/gone.pt is not fetched: it is a symbolic link")
	}
}

// A pattern matches a file's name on the host, not its escaped name.
func TestPatternOfAnOddName(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(map[string]string{"caf\xe9.pt": "latin"})
	err := Job(t.Context(), Request{Hosts: h.agents, Dir: t.TempDir(), Wanted: protocol.Wanted{Patterns: []string{"caf?.pt"}}, Printer: console.NewPrinter(console.Terminal{Stderr: &h.said})})
	if err != nil || strings.Contains(h.said.String(), "no file matches") {
		t.Errorf("%v; plx said %q", err, h.said.String())
	}
}

// some limits the number of lines, and its last line counts the files that are
// left out.
func TestSomeLimitsLines(t *testing.T) {
	lines := []string{"host h1: a", "host h2: a", "host h1: b", "host h1: c"}
	if got, want := some(lines, 2, "besides: ", "output"), []string{"hosts h[1-2]: a", "host h1: b", "besides: 1 output"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If outputs have the same checksum and size, they are fetched as one file. Only
// the same checksum, size or place is not enough. A damaged file is not fetched.
func TestEqualOutputsAreFetchedOnce(t *testing.T) {
	f := &fetcher{from: Request{Hosts: []*hosts.AgentHost{{Folder: "h1"}, {Folder: "h2"}, {Folder: "h3"}}}}
	all := f.outputFiles([][]protocol.HostOutput{{{Name: "a", Sum: "x", Size: 1}, {Name: "b", Damage: "a pipe"}}, {{Name: "a", Sum: "x", Size: 2}, {Name: "a", Sum: "y", Size: 1}}, {{Name: "c", Sum: "x", Size: 1}}})
	if len(all) != 3 || len(all[0].to) != 2 || len(all[0].from) != 2 || all[0].from[1].host != 2 || all[1].size != 2 || all[2].sum != "y" {
		t.Errorf("%+v", all)
	}
}

// The host gets a list of exactly the files that were fetched, because plx
// prune may then remove them.
func TestFailedOutputIsNotRecordedAsFetched(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(map[string]string{"a.pt": "weights", "b.pt": "others"})
	dir := t.TempDir()
	mine := filepath.Join(dir, "outputs/h1/worker-0/a.pt")
	if err := errors.Join(os.MkdirAll(filepath.Dir(mine), 0o700), os.WriteFile(mine, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := h.fetchJob(dir); err == nil {
		t.Error("a file that is not there was fetched")
	}
	text, err := os.ReadFile(filepath.Join(h.dirs[0], ".plx/jobs/j/h1/fetched.json"))
	if err != nil || !strings.Contains(string(text), "b.pt") || strings.Contains(string(text), "a.pt") {
		t.Errorf("the host has noted %s, %v", text, err)
	}
}

// A full disk of this machine is distinguished from one of a host. It is one
// error for all files.
func TestFullDiskIsOneError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full: ", err)
	}
	defer full.Close()
	part := &part{file: full, writer: holes.NewWriter(full, 0), size: 7, sum: sha256.New()}
	err = part.receive(t.Context(), "", func(_ context.Context, w io.Writer, _ int64) error {
		_, err := io.WriteString(w, "weights")
		return fmt.Errorf("host h1: %w", err)
	})
	if !isFull(err) || isFull(syscall.ENOSPC) {
		t.Errorf("%v is that of this machine: %v; that of a host is: %v", err, isFull(err), isFull(syscall.ENOSPC))
	}
	f := &fetcher{from: Request{Dir: "saved", Hosts: []*hosts.AgentHost{{Job: "j"}}}, left: map[string]int64{"a": 1 << 10, "b": 2 << 10, "c": 4 << 10}}
	other := errors.New("another error")
	err = f.joined([]error{err, other, err, nil})
	if !errors.As(err, new(errFull)) || err.Error() != "another error\nsaved: the disk of this machine is full: 7.0 KiB more to fetch" {
		t.Errorf("%v", err)
	}
	if err := f.joined([]error{other, nil}); err.Error() != other.Error() {
		t.Errorf("%v", err)
	}
}

// Files that were not fetched are counted. Fetched files, files that no host
// has, and those of an earlier round are not.
func TestUnfetchedBytesAreCounted(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(map[string]string{"a.pt": "weights", "b.pt": "others"})
	h.checkpoint(older, "p")
	h.checkpoint(newer, "pw")
	dir := t.TempDir()
	f := &fetcher{from: Request{Hosts: h.agents, Name: "mnist", Dir: dir, Outputs: patterns, Printer: console.NewPrinter(console.Terminal{Stderr: &h.said})}}
	if err := f.checkpoints(t.Context()); err != nil || len(f.left) > 0 {
		t.Errorf("%v, %v left", err, f.left)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "outputs/h1/worker-0"), 0o700), os.WriteFile(filepath.Join(dir, "outputs/h1/worker-0/a.pt"), []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if n, err := f.outputs(t.Context(), true); n != 1 || err == nil || !maps.Equal(f.left, map[string]int64{"outputs/h1/worker-0/a.pt": 7}) {
		t.Errorf("%d, %v, %v left", n, err, f.left)
	}
}

// A host that cannot be reached is an error, but the files of the other hosts
// are fetched.
func TestOutputsWithAHostOutOfReach(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(map[string]string{"a.pt": "weights"})
	h.lose(1)
	dir := t.TempDir()
	if err := h.fetchJob(dir); err == nil || !strings.Contains(err.Error(), "host h2: its outputs and logs are not fetched: it was not reached") {
		t.Errorf("%v", err)
	}
	if got := tree(t, dir); !slices.Equal(got, []string{"outputs/h1/worker-0/a.pt"}) {
		t.Errorf("%q", got)
	}
	h.says("no file matches --output runs")
}

// If the job changes a file after it was listed and before it is fetched, that
// is an error.
func TestOutputChangedDuringFetchFails(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(map[string]string{"a.pt": "weights"})
	h.anew(0).in = func(asked []byte) {
		if strings.Contains(string(asked), `"name":"a.pt"`) {
			h.write(0, ".plx/jobs/j/h1/tasks/worker-0/a.pt", "weighty")
		}
	}
	dir := t.TempDir()
	if err := h.fetchJob(dir); err == nil || !strings.Contains(err.Error(), "output outputs/h1/worker-0/a.pt: ") {
		t.Errorf("%v", err)
	}
	if got := tree(t, dir); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// If a file grows, such as a log, only the bytes that the host has listed are
// fetched.
func TestGrowingOutputIsFetchedAsListed(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(map[string]string{"a.pt": "weights"})
	h.anew(0).in = func(asked []byte) {
		if strings.Contains(string(asked), `"name":"a.pt"`) {
			h.write(0, ".plx/jobs/j/h1/tasks/worker-0/a.pt", "weights"+strings.Repeat(" and more", 1<<10))
		}
	}
	dir := t.TempDir()
	if err := h.fetchJob(dir); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "outputs/h1/worker-0/a.pt")); err != nil || string(text) != "weights" {
		t.Errorf("%q, %v", text, err)
	}
}

// If a host's file does not have the listed checksum, plx fetches the file
// from the next host.
func TestWrongChecksumOfOneHostTriesNext(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(map[string]string{"a.pt": "weights"})
	h.anew(0).in = func(asked []byte) {
		if strings.Contains(string(asked), `"name":"a.pt"`) {
			h.write(0, ".plx/jobs/j/h1/tasks/worker-0/a.pt", "another")
		}
	}
	dir := t.TempDir()
	if err := h.fetchJob(dir); err != nil {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "outputs/h2/worker-0/a.pt")); err != nil || string(text) != "weights" {
		t.Errorf("%q, %v", text, err)
	}
}

// The size of a list is limited, in whatever way the host ends it.
func TestEndlessListIsRejected(t *testing.T) {
	var list []protocol.HostOutput
	endless := func(out *lines[protocol.HostOutput], piece string) (err error) {
		for range 1 << 20 {
			if _, err = out.Write([]byte(piece)); err != nil {
				return err
			}
		}
		return errors.New("it took everything")
	}
	for piece, want := range map[string]string{
		`{"place":"ps-0","name":"x","damage":"x"}` + "\n": "more than 100000 outputs",
		strings.Repeat(" ", 99_999) + "\n":                "the list has more than 16777216 bytes",
		strings.Repeat("x", 99_999):                       "a line of the list has more than 8388608 bytes",
	} {
		list = make([]protocol.HostOutput, protocol.MaxOutputs-2) // two more may come
		if err := endless(listOfOutputs(&list), piece); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q...: %v, want %q", piece, err, want)
		}
	}
}

// The number of entries in a list of checkpoints is limited too, because an
// entry needs more memory than its text.
func TestEndlessCheckpointListIsRejected(t *testing.T) {
	for name, piece := range map[string]string{
		"checkpoints": `{"folder":"a"}` + "\n",
		"files":       `{"folder":"a","files":[` + strings.Repeat(`{"name":"a"},`, 999) + `{"name":"a"}]}` + "\n",
	} {
		var list []protocol.HostCheckpoint
		if name == "checkpoints" {
			list = make([]protocol.HostCheckpoint, maxListed-2) // two more may come
		}
		out, err := listOf(&list), error(nil)
		for i := 0; i < 1<<20 && err == nil; i++ {
			_, err = out.Write([]byte(piece))
		}
		if err == nil || !strings.Contains(err.Error(), "more than 100000 checkpoints or files") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A listed name is an error if it leads out of the folder, is hidden, or
// contains control characters.
func TestUnsafeNamesAreRejected(t *testing.T) {
	sum := strings.Repeat("00", 32)
	for _, name := range []string{"..", "../x", "a/../../x", "/etc/passwd", ".ssh", ".ssh/authorized_keys", "a/.", "a//b", "a\u0000b", "a\u001b[2Jb", "a\nb", ""} {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkKept(protocol.HostCheckpoint{Folder: name}); err == nil {
			t.Errorf("checkpoint in %s is accepted", quoted)
		}
		files := []protocol.CheckpointFile{{Name: name}}
		if err := checkKept(protocol.HostCheckpoint{Folder: "a", Files: files}); err == nil {
			t.Errorf("file %s of a checkpoint is accepted", quoted)
		}
		if err := checkOutput(protocol.HostOutput{Place: "worker-0", Name: name, Sum: sum}); err == nil {
			t.Errorf("output %s is accepted", quoted)
		}
		if err := checkOutput(protocol.HostOutput{Place: protocol.LogsPlace, Name: name, Sum: sum}); err == nil {
			t.Errorf("log %s is accepted", quoted)
		}
		if err := checkOutput(protocol.HostOutput{Place: name, Name: "a", Sum: sum}); err == nil {
			t.Errorf("outputs of %s are accepted", quoted)
		}
	}
}

// Listed sizes and checksums that are impossible are errors, and so is a name
// that no file system accepts.
func TestInvalidSizesAndSumsAreRejected(t *testing.T) {
	sum := strings.Repeat("00", 32)
	good := protocol.HostOutput{Place: "worker-0", Name: "a", Sum: sum}
	if err := errors.Join(checkOutput(good), checkKept(protocol.HostCheckpoint{Folder: "a", Files: []protocol.CheckpointFile{{Name: "a"}}})); err != nil {
		t.Fatal(err)
	}
	if err := checkOutput(protocol.HostOutput{Place: protocol.LogsPlace, Name: "worker-0.stdout", Sum: sum}); err != nil {
		t.Error(err)
	}
	for _, lie := range []func(*protocol.HostOutput){
		func(o *protocol.HostOutput) { o.Place = protocol.LogsPlace },
		func(o *protocol.HostOutput) { o.Place, o.Name = protocol.LogsPlace, "worker-0.stdout/a" },
		func(o *protocol.HostOutput) { o.Place, o.Name = protocol.LogsPlace, "worker-0.stdout.h2" },
		func(o *protocol.HostOutput) { o.Size = -1 },
		func(o *protocol.HostOutput) { o.Sum = sum[2:] },
		func(o *protocol.HostOutput) { o.Sum = "x" + sum[1:] },
		func(o *protocol.HostOutput) { o.Name = strings.Repeat("a", protocol.MaxOutputName+1) },
	} {
		o := good
		if lie(&o); checkOutput(o) == nil {
			t.Errorf("output %+v is accepted", o)
		}
	}
	if checkKept(protocol.HostCheckpoint{Folder: "a", Files: []protocol.CheckpointFile{{Name: "a", Size: -1}}}) == nil {
		t.Error("a file of a checkpoint with less than no bytes is accepted")
	}
	if checkKept(protocol.HostCheckpoint{Folder: strings.Repeat("a", 1001)}) == nil {
		t.Error("a long folder of a checkpoint is accepted")
	}
}

// No path that a host lists can lead out of the local folder.
func FuzzListOfOutputs(f *testing.F) {
	f.Add([]byte(`{"place":"worker-0","name":"a/b","sum":"` + strings.Repeat("00", 32) + `"}` + "\n"))
	f.Add([]byte(`{"place":"..","name":"a","damage":"x"}`))
	f.Add([]byte(`{"place":"ps-0","name":"../a","damage":"x"}`))
	f.Add([]byte(`{"place":"shared","name":".ssh/authorized_keys","damage":"x"}`))
	f.Add([]byte(`{"place":"logs","name":"worker-0.stdout","sum":"` + strings.Repeat("00", 32) + `"}` + "\n"))
	f.Add([]byte(`{"place":"telemetry","name":"/etc/passwd","damage":"x"}{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list []protocol.HostOutput
		out := listOfOutputs(&list)
		if _, err := out.Write(text); errors.Join(err, out.end()) != nil {
			return
		}
		for _, o := range list {
			whole := o.Place + "/" + o.Name
			if !filepath.IsLocal(whole) || filepath.Clean(whole) != whole || strings.HasPrefix(o.Name, ".") || strings.HasPrefix(o.Place, ".") {
				t.Errorf("%q", whole)
			}
		}
	})
}

// Files that no --output names are counted, and they are fetched if the user
// requests them.
func TestFilesWithoutPatternAreCountedAndFetched(t *testing.T) {
	h := newHomes(t, 3)
	h.ran(map[string]string{"a.pt": "named", "log.txt": "four", "deep/er": "123"})
	made := func(want string) {
		t.Helper()
		if line, _, err := Made(t.Context(), "j", h.agents); line != want || err != nil {
			t.Errorf("%q, %v; want %q", line, err, want)
		}
	}
	made("made 6 files, 21 B, on 3 hosts: plx fetch j DIR")
	if _, named, err := Made(t.Context(), "j", h.agents, protocol.FileCounts{Named: 2}); named != 5 || err != nil {
		t.Errorf("%d files that an output names, %v", named, err)
	}
	if line, _, err := Made(t.Context(), "j", h.agents[:1], protocol.FileCounts{}, protocol.FileCounts{Files: 1, Bytes: 3}); line != "made 3 files, 10 B, on 2 hosts: plx fetch j DIR" || err != nil {
		t.Errorf("one host asked, two known: %q, %v", line, err)
	}
	dir := t.TempDir()
	fetch := func(want protocol.Wanted) error {
		h.said.Reset()
		return Job(t.Context(), Request{Hosts: h.agents, Name: "mnist", Dir: dir, Outputs: patterns, Wanted: want, Printer: console.NewPrinter(console.Terminal{Stderr: &h.said})})
	}
	if err := fetch(protocol.Wanted{Patterns: []string{"*.txt", "none"}}); err != nil {
		t.Errorf("%v; %s", err, h.said.String())
	}
	h.says("no file matches none\n")
	if got := tree(t, dir); !slices.Equal(got, []string{"outputs/h1/worker-0/log.txt", "outputs/h2/worker-0/log.txt", "outputs/h3/worker-0/log.txt"}) {
		t.Errorf("by a pattern: %q", got)
	}
	made("made 3 files, 9 B, on 3 hosts: plx fetch j DIR")
	if err := fetch(protocol.Wanted{Patterns: []string{"none"}}); !IsNothing(err) {
		t.Errorf("%v", err)
	}
	if err := fetch(protocol.Wanted{Made: true}); err != nil {
		t.Errorf("%v; %s", err, h.said.String())
	}
	if got := tree(t, dir); len(got) != 9 {
		t.Errorf("all: %q", got)
	}
	made("")
	h.lose(1)
	if line, _, err := Made(t.Context(), "j", h.agents); line != "" || err == nil || !strings.HasPrefix(err.Error(), "host h2: count the files that the job made: ") {
		t.Errorf("%q, %v", line, err)
	}
}

// If a job has made no files, Nothing reports true for the error. If a host
// cannot be reached, it reports false.
func TestNothingToFetchIsNoFailure(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(nil)
	if err := h.fetchJob(t.TempDir()); !IsNothing(err) {
		t.Errorf("%v", err)
	}
	h.lose(1)
	if err := h.fetchJob(t.TempDir()); err == nil || IsNothing(err) {
		t.Errorf("with a host out of reach: %v", err)
	}
	if err := Job(t.Context(), Request{Hosts: h.agents, Name: "mnist", Dir: t.TempDir(), Printer: console.NewPrinter(console.Terminal{Stderr: &h.said})}); err == nil || IsNothing(err) {
		t.Errorf("checkpoints alone, with a host out of reach: %v", err)
	}
}
