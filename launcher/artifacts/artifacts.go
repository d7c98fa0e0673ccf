// Package artifacts provides the binaries that a launch sends to its hosts.
// For each platform these are plx itself, which runs as the agent, and the
// user's program.
//
//	set, err := artifacts.Pack(ctx, artifacts.Source{Program: "./train", Kind: entrypoint.Local}, platforms, printer)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	agent := set.Agent(envsync.Platform{OS: "linux", Arch: "arm64"})
//
// This package only finds and builds binaries. The packages hosts and
// provision send them.
package artifacts

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/scratch"
)

// here is the operating system and architecture of this process.
var here = envsync.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}

// Source says from which files Pack makes the binaries of a launch.
type Source struct {
	// Program is a local executable or the directory of a Go package,
	// depending on Kind. Kinds for programs that are installed on the hosts
	// need no Program, because Pack sends none.
	Program string
	Kind    entrypoint.Kind

	// Agent returns the plx binary for a platform. If it is nil, Pack finds or
	// builds that binary.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)

	hashed envsync.Blob // checksum of Program, set by the method Expected; the zero value means not computed yet
}

// Own returns this process's binary if hosts of the same platform can run it.
// If ok is false, the caller must find or build another binary for these
// hosts.
func Own() (b envsync.Blob, ok bool) {
	b, err := own()
	return b, err == nil
}

var own = sync.OnceValues(func() (envsync.Blob, error) {
	self, err := os.Executable()
	if err == nil && (here.OS != "linux" || needsLibc(self)) {
		err = errors.New("hosts cannot run it")
	}
	if err != nil {
		return envsync.Blob{}, err
	}
	return envsync.FileBlob(self)
})

// Expected returns the program with its checksum if it is a local executable.
// plx can then ask the hosts early whether they already have the file. On an
// error it returns nothing, because Pack reports the same error later.
func (src *Source) Expected() (blobs []envsync.Blob) {
	if src.Kind != entrypoint.Local {
		return nil
	}
	b, err := envsync.FileBlob(src.Program)
	if err != nil {
		return nil
	}
	src.hashed = b
	return []envsync.Blob{b}
}

// Set holds the binaries that a launch sends. The caller must call Close.
type Set struct {
	source   Source
	agents   map[envsync.Platform]envsync.Blob // plx binaries, by platform of the hosts
	programs map[envsync.Platform]envsync.Blob // the user's program, by platform; empty if the program is already installed on the hosts
	folder   *scratch.Folder                   // temporary directory for binaries that this machine builds, removed by Close; nil if it has built none
}

// Pack returns the binaries of a launch for the given platforms. It builds
// binaries that do not exist yet, and displays progress on printer.
func Pack(ctx context.Context, src Source, platforms []envsync.Platform, printer *console.Printer) (s *Set, err error) {
	s = &Set{source: src, agents: map[envsync.Platform]envsync.Blob{}, programs: map[envsync.Platform]envsync.Blob{}}
	defer func() {
		if err != nil {
			s.Close() // ignore an error, because err already says why Pack failed
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find plx's own binary: %w", err)
	}
	for _, p := range platforms {
		if src.Agent != nil {
			s.agents[p], err = src.Agent(ctx, p)
		} else {
			s.agents[p], err = s.agent(ctx, self, p, printer)
		}
		if err != nil {
			return s, &PlatformError{p, err}
		}
		if src.Kind != entrypoint.Local && src.Kind != entrypoint.GoPackage {
			continue
		}
		if s.programs[p], err = s.program(ctx, src, p, printer); err != nil {
			return s, err
		}
	}
	return s, nil
}

// PlatformError means that no plx binary for a platform was found or built.
type PlatformError struct {
	Platform envsync.Platform
	error
}

func (e *PlatformError) Unwrap() error { return e.error }

// Agent returns the plx binary for hosts of platform p.
func (s *Set) Agent(p envsync.Platform) envsync.Blob { return s.agents[p] }

// Close removes the binaries that were built on this machine.
func (s *Set) Close() error { return s.folder.Remove() }

// Program returns the user's program for platform p. The result is false if
// the program is a command that is installed on the hosts.
func (s *Set) Program(p envsync.Platform) (envsync.Blob, bool) {
	b, ok := s.programs[p]
	return b, ok
}

// agent returns a plx binary for platform p. It prefers the running binary
// self, then a release binary in the same directory. If neither fits, it
// builds plx from source.
func (s *Set) agent(ctx context.Context, self string, p envsync.Platform, printer *console.Printer) (envsync.Blob, error) {
	if b, fits := Own(); p == here && fits {
		return b, nil
	}
	folder, release := filepath.Dir(self), "plx-"+p.OS+"-"+p.Arch
	beside := filepath.Join(folder, release)
	if _, err := os.Stat(beside); err == nil {
		if ours, its := commit(self), commit(beside); ours != "" && its != "" && ours != its {
			err := fmt.Errorf("%s cannot be this plx's agent: it was built from commit %.12s, this plx from %.12s", beside, its, ours)
			return envsync.Blob{}, exit.WithHint(err, fmt.Sprintf("put %s of this plx's release into %s", release, folder))
		}
		return envsync.FileBlob(beside)
	}
	hint := fmt.Sprintf("put %s of the same release into %s, or run plx from its source folder", release, folder)
	if source := sourceFolder(); source != "" {
		b, err := s.goBuild(ctx, "plx from "+source, source, "plx", p, printer)
		if err != nil && ctx.Err() == nil {
			err = exit.WithHint(fmt.Errorf("build the agent: %w", err), hint)
		}
		return b, err
	}
	if p == here {
		return envsync.FileBlob(self)
	}
	return envsync.Blob{}, exit.WithHint(fmt.Errorf("no agent for %s: neither plx's release nor its source is here", p), hint)
}

// needsLibc reports whether the binary was built with cgo. Such a binary may not start
// on a host with another C library.
func needsLibc(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"})
}

// commit returns the git commit from which a Go binary was built, or "" if the
// binary does not contain it.
func commit(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// sourceFolder returns the root of plx's source tree if the current directory
// is inside that tree, else "".
func sourceFolder() string {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			if strings.HasPrefix(string(text), "module github.com/plx-run/plx\n") {
				return dir
			}
			break
		}
	}
	return ""
}

// program returns the user's program for platform p. If Source.Program is a Go
// package, it builds the package.
func (s *Set) program(ctx context.Context, src Source, p envsync.Platform, printer *console.Printer) (envsync.Blob, error) {
	program := src.Program
	if src.Kind != entrypoint.GoPackage {
		defer printer.Watch(func() string { return "hashing " + program })()
		if src.hashed.Path == program {
			return src.hashed, nil
		}
		return envsync.FileBlob(program)
	}
	name := "program"
	if abs, err := filepath.Abs(program); err == nil {
		name = filepath.Base(abs) // use the name that go build would choose
	}
	b, err := s.goBuild(ctx, program, program, name, p, printer)
	if err != nil && ctx.Err() == nil {
		err = exit.WithCode(err, exit.CodeNotRunning)
	}
	return b, err
}

// goBuild builds the Go package in a directory without cgo, so that the binary
// runs with every C library. During the build it displays a progress line, in
// which what names the package.
func (s *Set) goBuild(ctx context.Context, what, folder, name string, p envsync.Platform, printer *console.Printer) (envsync.Blob, error) {
	begun := time.Now() // go build prints no progress, so the elapsed time in the progress line shows that plx is alive
	defer printer.WatchLocal(func() string {
		return fmt.Sprintf("building %s for %s (%.0fs)", what, p, time.Since(begun).Seconds())
	})()
	if s.folder == nil {
		made, err := scratch.New()
		if err != nil {
			return envsync.Blob{}, err
		}
		s.folder = made
	}
	out := filepath.Join(s.folder.Path, p.OS+"-"+p.Arch, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, ".")
	s.folder.Hold(cmd)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch)
	if os.Getenv("GOTMPDIR") == "" { // put go build's temporary files into s.folder, which is removed even if go build is killed
		cmd.Env = append(cmd.Env, "GOTMPDIR="+s.folder.Path)
	}
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return envsync.Blob{}, context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return envsync.Blob{}, exit.WithHint(fmt.Errorf("build %s: the go command is not on this machine", folder),
			"install Go, or build the program elsewhere and launch the file")
	}
	if err != nil {
		return envsync.Blob{}, fmt.Errorf("go build %s for %s: %w\n%s", folder, p, err, strings.TrimSpace(string(said)))
	}
	return envsync.FileBlob(out)
}
