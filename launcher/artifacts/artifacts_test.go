package artifacts

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/scratch"
)

// foreign returns a platform other than this machine's, and the ELF machine
// type of its programs.
func foreign() (envsync.Platform, elf.Machine) {
	if runtime.GOARCH == "arm64" {
		return envsync.Platform{OS: "linux", Arch: "amd64"}, elf.EM_X86_64
	}
	return envsync.Platform{OS: "linux", Arch: "arm64"}, elf.EM_AARCH64
}

// raspberry is a platform with a uname -m value that Go has no GOARCH for.
var raspberry = envsync.Platform{OS: "linux", Arch: "armv7l"}

// source creates a Go module with a tiny program. The module has plx's module
// path, so that artifacts takes the directory for plx's source.
func source(t *testing.T) string {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module github.com/plx-run/plx\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {}\n")
	write(t, filepath.Join(dir, "tool", "main.go"), "package main\n\nfunc main() { println(1) }\n")
	return dir
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameBlob fails the test unless b is the file at path.
func sameBlob(t *testing.T, b envsync.Blob, path string) {
	t.Helper()
	want, err := envsync.FileBlob(path)
	if err != nil || b.Sum != want.Sum {
		t.Errorf("blob %s %s; want %s with %s (%v)", b.Name, b.Sum, path, want.Sum, err)
	}
}

// machineOf returns the ELF machine type of the program at path.
func machineOf(t *testing.T, path string) elf.Machine {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Machine
}

// wantError fails the test unless err has this exit status, and err or its
// hint contains all of words.
func wantError(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	if exit.Code(err) != code {
		t.Errorf("%v: status %d, want %d", err, exit.Code(err), code)
	}
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error()+"\n"+exit.Hint(err), w) {
			t.Errorf("%v (hint %q) does not say %q", err, exit.Hint(err), w)
		}
	}
}

// For a host of another platform, the release binary beside plx is used as the
// agent, even if plx's source is available.
func TestReleaseBinaryIsUsedAsAgent(t *testing.T) {
	t.Chdir(source(t))
	folder, c := t.TempDir(), &Set{folder: &scratch.Folder{Path: t.TempDir()}}
	self := write(t, filepath.Join(folder, "plx"), "this platform's")
	other, _ := foreign()
	for _, p := range []envsync.Platform{other, raspberry} {
		want := write(t, filepath.Join(folder, "plx-linux-"+p.Arch), "of "+p.String())
		b, err := c.agent(t.Context(), self, p, quiet)
		if err != nil {
			t.Fatal(err)
		}
		sameBlob(t, b, want)
	}
}

// screen is a terminal for tests. It may be written from several goroutines.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// While plx itself is built from source for the hosts, the progress is
// displayed.
func TestBuildShowsProgress(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	t.Chdir(source(t))
	other, _ := foreign()
	var shown screen
	printer := console.NewPrinter(console.Terminal{Stderr: &shown, StderrTTY: true})
	c := &Set{folder: &scratch.Folder{Path: t.TempDir()}}
	if _, err := c.agent(t.Context(), write(t, filepath.Join(t.TempDir(), "plx"), "this platform's"), other, printer); err != nil {
		t.Fatal(err)
	}
	shown.mu.Lock()
	defer shown.mu.Unlock()
	if got := shown.text.String(); !strings.Contains(got, "plx: building plx from ") {
		t.Errorf("%q", got)
	}
}

// For hosts of this platform the agent is this process's own binary, unless
// that needs a C library.
func TestOwn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, ok := Own()
	if ok == needsLibc(self) {
		t.Errorf("%t", ok)
	}
	if ok {
		sameBlob(t, b, self)
	}
}

// A release binary from another commit than this plx, such as after an
// upgrade, is rejected as agent.
func TestAgentOfAnotherReleaseIsRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	dir, folder, other := t.TempDir(), t.TempDir(), envsync.Platform{OS: "linux", Arch: "sparc"}
	run := func(words ...string) {
		t.Helper()
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
	}
	write(t, filepath.Join(dir, "go.mod"), "module example.org/agent\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {}\n")
	beside, self := filepath.Join(folder, "plx-linux-sparc"), filepath.Join(folder, "plx")
	release := func(programs ...string) {
		t.Helper()
		run("git", "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "--quiet", "--allow-empty", "--message=release")
		for _, path := range programs {
			run("go", "build", "-buildvcs=true", "-o", path, ".")
		}
	}
	run("git", "init", "--quiet")
	run("git", "add", ".")
	release(beside, self)
	b, err := (&Set{}).agent(t.Context(), self, other, quiet)
	if err != nil {
		t.Fatal(err)
	}
	sameBlob(t, b, beside)
	release(self)
	_, err = (&Set{}).agent(t.Context(), self, other, quiet)
	wantError(t, err, exit.CodePlx, beside+" cannot be this plx's agent: it was built from commit "+commit(beside)[:12]+", this plx from "+commit(self)[:12],
		"put plx-linux-sparc of this plx's release into "+folder)
}

// Without a release binary, plx is built from source, from any directory
// inside the source tree.
func TestAgentFromSource(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plx")
	}
	other, machine := foreign()
	dir := source(t)
	c := &Set{folder: &scratch.Folder{Path: t.TempDir()}}
	self := write(t, filepath.Join(t.TempDir(), "plx"), "this platform's")
	t.Chdir(filepath.Join(dir, "tool"))
	b, err := c.agent(t.Context(), self, other, quiet)
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(c.folder.Path, "linux-"+other.Arch, "plx")
	sameBlob(t, b, built)
	if got := machineOf(t, built); got != machine {
		t.Errorf("the agent for %s is for %s", other, got)
	}
	_, err = c.agent(t.Context(), self, raspberry, quiet)
	wantError(t, err, exit.CodePlx, "build the agent", "linux/armv7l", "unsupported", "put plx-linux-armv7l of the same release into "+filepath.Dir(self))
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() { nonsense }\n")
	_, err = c.agent(t.Context(), self, other, quiet)
	wantError(t, err, exit.CodePlx, "build the agent", other.String(), "nonsense", "put plx-linux-"+other.Arch)
}

// Without a release binary and source there is no agent, and the error has a
// hint.
func TestMissingAgentHasHint(t *testing.T) {
	other, _ := foreign()
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "go.mod"), "module example.org/other\n")
	write(t, filepath.Join(elsewhere, "main.go"), "package main\n\nfunc main() {}\n")
	self := write(t, filepath.Join(t.TempDir(), "plx"), "this platform's")
	c := &Set{folder: &scratch.Folder{Path: t.TempDir()}}
	for _, dir := range []string{t.TempDir(), elsewhere} {
		t.Chdir(dir)
		for _, p := range []envsync.Platform{other, raspberry} {
			_, err := c.agent(t.Context(), self, p, quiet)
			wantError(t, err, exit.CodePlx, "no agent for "+p.String(), "put plx-linux-"+p.Arch+" of the same release into "+filepath.Dir(self), "source folder")
		}
	}
}

// A Go package is built for the hosts' platform; an executable is sent
// unchanged. If either cannot be used, the exit status is that of a shell.
func TestProgramForAnotherPlatform(t *testing.T) {
	other, machine := foreign()
	dir, c, v := source(t), &Set{folder: &scratch.Folder{Path: t.TempDir()}}, console.NewPrinter(console.Terminal{Stderr: io.Discard})
	tool := filepath.Join(dir, "tool")
	b, err := c.program(t.Context(), Source{Program: tool, Kind: entrypoint.GoPackage}, other, v)
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(c.folder.Path, "linux-"+other.Arch, "tool")
	sameBlob(t, b, built)
	if got := machineOf(t, built); got != machine || b.Name != "tool" {
		t.Errorf("program %s for %s is for %s", b.Name, other, got)
	}
	script := write(t, filepath.Join(dir, "script"), "#!/bin/sh\n")
	if b, err = c.program(t.Context(), Source{Program: script, Kind: entrypoint.Local}, other, v); err != nil {
		t.Fatal(err)
	}
	sameBlob(t, b, script)

	_, err = c.program(t.Context(), Source{Program: tool, Kind: entrypoint.GoPackage}, raspberry, v)
	wantError(t, err, 126, tool, "linux/armv7l", "unsupported")
	write(t, filepath.Join(tool, "main.go"), "package main\n\nfunc main() { nonsense }\n")
	_, err = c.program(t.Context(), Source{Program: tool, Kind: entrypoint.GoPackage}, other, v)
	wantError(t, err, 126, tool, other.String(), "nonsense")
}

// Each platform gets its own binaries, and Close removes all that were built.
func TestEachPlatformGetsItsBinaries(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plx")
	}
	other, _ := foreign()
	dir, scratch, v := source(t), t.TempDir(), console.NewPrinter(console.Terminal{Stderr: io.Discard})
	t.Setenv("TMPDIR", scratch)
	t.Chdir(dir)
	c, err := Pack(t.Context(), Source{Program: "./tool", Kind: entrypoint.GoPackage}, []envsync.Platform{here, other}, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []envsync.Platform{here, other} {
		program, sent := c.Program(p)
		if c.Agent(p).Sum != c.agents[p].Sum || !sent || program.Sum != c.programs[p].Sum {
			t.Errorf("%s gets %+v and %+v", p, c.Agent(p), program)
		}
	}
	if c.agents[here].Sum == c.agents[other].Sum || c.programs[here].Sum == c.programs[other].Sum {
		t.Errorf("%s and %s get the same files", here, other)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_, err = Pack(t.Context(), Source{Program: "./tool", Kind: entrypoint.GoPackage}, []envsync.Platform{other, raspberry}, v)
	wantError(t, err, exit.CodePlx, "linux/armv7l")
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// canceller is a terminal on which the user presses Ctrl-C at the first line.
type canceller context.CancelCauseFunc

// quiet is a printer whose output is discarded.
var quiet = console.NewPrinter(console.Terminal{Stderr: io.Discard})

func (c canceller) Write(p []byte) (int, error) {
	c(exit.WithCode(errors.New("interrupted"), 130))
	return len(p), nil
}

// An interrupted build is not reported as a wrong program or a missing agent.
func TestBuildInterrupted(t *testing.T) {
	dir, c := source(t), &Set{folder: &scratch.Folder{Path: t.TempDir()}}
	t.Chdir(dir)
	other, _ := foreign()
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := c.program(ctx, Source{Program: filepath.Join(dir, "tool"), Kind: entrypoint.GoPackage}, other, console.NewPrinter(console.Terminal{Stderr: canceller(cancel), StderrTTY: true}))
	wantError(t, err, 130)
	if _, err = c.agent(ctx, filepath.Join(dir, "plx"), other, quiet); exit.Hint(err) != "" {
		t.Errorf("interrupted, and advised: %s", exit.Hint(err))
	}
	wantError(t, err, 130)
}

// Without the go command a Go package cannot be built, and the hint names an
// alternative.
func TestBuildWithoutGo(t *testing.T) {
	dir, c := source(t), &Set{folder: &scratch.Folder{Path: t.TempDir()}}
	t.Setenv("PATH", t.TempDir())
	_, err := c.program(t.Context(), Source{Program: filepath.Join(dir, "tool"), Kind: entrypoint.GoPackage}, here, quiet)
	wantError(t, err, 126)
	if err == nil || !strings.Contains(err.Error(), "the go command is not on this machine") || !strings.Contains(exit.Hint(err), "install Go") {
		t.Errorf("%v; hint: %s", err, exit.Hint(err))
	}
}
