// Package artifacts makes the files that a launch sends to its hosts: for each
// platform plx itself as agent and the user's program.
//
//	set, err := artifacts.Pack(ctx, artifacts.Source{Program: "./train", Kind: entrypoint.Local}, platforms, printer)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	agent := set.Agent(envsync.Platform{OS: "linux", Arch: "arm64"})
//
// It sends nothing: packages hosts and provision do.
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

// here is the platform of this process.
var here = envsync.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}

// Source is what the user wants to send.
type Source struct {
	// Program is an executable of this machine or a Go package folder, as Kind says. Other
	// kinds reach the hosts by other means.
	Program string
	Kind    entrypoint.Kind

	// Agent returns plx for a platform. Nil: Pack finds or builds it.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)

	hashed envsync.Blob // Program, if Likely has hashed it
}

// Own returns this process's binary, if hosts of its platform can run it. ok is false if another
// one has to be found or built for them.
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

// Likely returns what hosts of this machine's platform will need besides plx, as far as nothing has
// to be built. After an error it returns nothing: Pack tells of it.
func (src *Source) Likely() (blobs []envsync.Blob) {
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

// Set is what a launch sends. Close must be called.
type Set struct {
	source   Source
	agents   map[envsync.Platform]envsync.Blob // plx itself, by platform of the hosts
	programs map[envsync.Platform]envsync.Blob // the user's program, by platform; empty if it is a command of the hosts
	folder   *scratch.Folder                   // of what was built; Close removes it; nil: nothing was
}

// Pack makes the Set of a launch for the given platforms. It builds what is not there
// yet. The printer shows what takes long.
func Pack(ctx context.Context, src Source, platforms []envsync.Platform, printer *console.Printer) (s *Set, err error) {
	s = &Set{source: src, agents: map[envsync.Platform]envsync.Blob{}, programs: map[envsync.Platform]envsync.Blob{}}
	defer func() {
		if err != nil {
			s.Close() // the first error says more
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

// PlatformError says that there is no plx for the hosts of a platform.
type PlatformError struct {
	Platform envsync.Platform
	error
}

func (e *PlatformError) Unwrap() error { return e.error }

// Agent returns plx itself for hosts of platform p.
func (s *Set) Agent(p envsync.Platform) envsync.Blob { return s.agents[p] }

// Close removes what was built on this machine.
func (s *Set) Close() error { return s.folder.Remove() }

// Program returns the program for platform p. False: it is a command of the hosts.
func (s *Set) Program(p envsync.Platform) (envsync.Blob, bool) {
	b, ok := s.programs[p]
	return b, ok
}

// agent returns plx itself for p. It takes the running binary self if that fits, else
// the binary of the release in the same folder, else it builds one from source.
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

// commit returns the commit that a Go program was built from, or "" if it was not
// recorded.
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

// sourceFolder returns the folder of plx's source that the working directory is in, or
// "".
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

// program returns the program for p, and builds it if it is a package folder.
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
		name = filepath.Base(abs) // as go build names it
	}
	b, err := s.goBuild(ctx, program, program, name, p, printer)
	if err != nil && ctx.Err() == nil {
		err = exit.WithCode(err, exit.CodeNotRunning)
	}
	return b, err
}

// goBuild builds the package in a folder without cgo, so that the binary runs with every
// C library. It shows that it does: what is what the user calls the package.
func (s *Set) goBuild(ctx context.Context, what, folder, name string, p envsync.Platform, printer *console.Printer) (envsync.Blob, error) {
	begun := time.Now() // go build tells nothing before its end: the time shows that plx lives
	defer printer.Here(func() string {
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
	if os.Getenv("GOTMPDIR") == "" { // so that nothing of it stays either, if both are killed
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
