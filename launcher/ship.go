package launcher

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/plx-run/plx/envsync"
)

// platform is a host's operating system and processor, in Go's words.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var here = platform{runtime.GOOS, runtime.GOARCH}

// cargo is what a launch sends: per platform an agent and a program, and the
// user's files for all. Its blobs are opened once and closed by Close.
type cargo struct {
	agents   map[platform]envsync.Blob
	programs map[platform]envsync.Blob // empty for a command of the hosts' own
	files    []envsync.Blob
	scratch  string // folder of what was built
}

// pack makes the cargo of a launch for the given platforms.
func pack(ctx context.Context, cfg Config, platforms []platform, v *voice) (c *cargo, err error) {
	scratch, err := os.MkdirTemp("", "plx-build-")
	if err != nil {
		return nil, err
	}
	c = &cargo{agents: map[platform]envsync.Blob{}, programs: map[platform]envsync.Blob{}, scratch: scratch}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	kind, err := kindOf(cfg.Program)
	if err != nil {
		return c, err
	}
	self, err := os.Executable()
	if err != nil {
		return c, fmt.Errorf("find plx's own binary: %w", err)
	}
	for _, p := range platforms {
		if c.agents[p], err = c.agent(ctx, self, p); err != nil {
			return c, err
		}
		if kind == onHost {
			continue
		}
		if c.programs[p], err = c.program(ctx, cfg.Program, kind, p, v); err != nil {
			return c, err
		}
	}
	if len(cfg.Copy) > 0 {
		files, err := envsync.ArchiveBlob(cfg.Copy)
		if err != nil {
			return c, Mistake(fmt.Errorf("--copy: %w", err), "")
		}
		c.files = append(c.files, files)
	}
	return c, nil
}

// blobs returns what a host of platform p needs.
func (c *cargo) blobs(p platform) []envsync.Blob {
	blobs := []envsync.Blob{c.agents[p]}
	if program, ok := c.programs[p]; ok {
		blobs = append(blobs, program)
	}
	return append(blobs, c.files...)
}

// Close removes what was built or packed on this machine.
func (c *cargo) Close() error {
	var errs []error
	for _, b := range c.files {
		errs = append(errs, b.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.scratch))...)
}

// kind is how a program is named.
type kind int

const (
	onHost    kind = iota // a bare command name, found on the hosts' PATH
	local                 // an executable of this machine, shipped
	goPackage             // a folder with Go sources, built for each platform
)

// kindOf decides as a shell does: only a name with a slash is a path. A
// program that cannot be run is found out here, before any host is touched.
func kindOf(program string) (kind, error) {
	if !strings.ContainsRune(program, '/') && program != "." && program != ".." {
		return onHost, nil
	}
	info, err := os.Stat(program)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, &coded{fmt.Errorf("program %s: no such file on this machine", program), 127}
	case err != nil:
		return 0, &coded{fmt.Errorf("program %s: %w", program, err), 126}
	case info.IsDir():
		return goPackage, checkPackage(program)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return 0, &coded{fmt.Errorf("program %s: it is not executable", program), 126}
	}
	return local, nil
}

func checkPackage(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return &coded{fmt.Errorf("program %s: %w", folder, err), 126}
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			return nil
		}
	}
	return &coded{fmt.Errorf("program %s: a folder without Go sources", folder), 126}
}

// program makes the blob of the program for p.
func (c *cargo) program(ctx context.Context, program string, k kind, p platform, v *voice) (envsync.Blob, error) {
	path := program
	if k == goPackage {
		path = filepath.Join(c.scratch, p.os+"-"+p.arch, packageName(program))
		if err := checkMain(ctx, program); err != nil {
			return envsync.Blob{}, err
		}
		v.say("building %s for %s", program, p)
		if err := goBuild(ctx, program, ".", path, p); err != nil && ctx.Err() == nil {
			return envsync.Blob{}, &coded{err, 126}
		} else if err != nil {
			return envsync.Blob{}, err
		}
	}
	return envsync.FileBlob(path)
}

// checkMain refuses a package that go build would make a library of.
func checkMain(ctx context.Context, folder string) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.Name}}", ".")
	cmd.Dir = folder
	name, err := cmd.Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got := strings.TrimSpace(string(name)); err == nil && got != "main" {
		return &coded{fmt.Errorf("program %s: it is package %s, and only package main is a program", folder, got), 126}
	}
	return nil // what else is wrong go build tells best
}

// packageName is what go build would call the program.
func packageName(folder string) string {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return "program"
	}
	return filepath.Base(abs)
}

// goBuild builds the package pkg, seen from folder, without cgo, so that the
// binary runs on any host of the platform.
func goBuild(ctx context.Context, folder, pkg, out string, p platform) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("go build %s for %s: %w\n%s", folder, p, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// agent makes the blob of plx itself for p: the binary self where it fits, else
// the one of the release beside it, else one built from source.
func (c *cargo) agent(ctx context.Context, self string, p platform) (envsync.Blob, error) {
	if p == here && !needsLibc(self) {
		return envsync.FileBlob(self)
	}
	folder, release := filepath.Dir(self), "plx-"+p.os+"-"+p.arch
	if beside := filepath.Join(folder, release); exists(beside) {
		return envsync.FileBlob(beside)
	}
	hint := fmt.Sprintf("put %s of the same release into %s, or run plx from its source folder", release, folder)
	if source := sourceFolder(); source != "" {
		out := filepath.Join(c.scratch, p.os+"-"+p.arch, "plx")
		if err := goBuild(ctx, source, ".", out, p); err != nil && ctx.Err() == nil {
			return envsync.Blob{}, &hinted{fmt.Errorf("build the agent: %w", err), hint}
		} else if err != nil {
			return envsync.Blob{}, err
		}
		return envsync.FileBlob(out)
	}
	if p == here {
		return envsync.FileBlob(self)
	}
	return envsync.Blob{}, &hinted{fmt.Errorf("no agent for %s: neither the release's nor the source of plx is here", p), hint}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// needsLibc reports whether the binary was built with cgo, and so may not
// start on a host with another C library.
func needsLibc(path string) bool {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" {
			return s.Value == "1"
		}
	}
	return false
}

// sourceFolder is the folder of plx's own source when the working directory
// is in it, else "".
func sourceFolder() string {
	dir, err := os.Getwd()
	for err == nil {
		text, readErr := os.ReadFile(filepath.Join(dir, "go.mod"))
		if readErr == nil {
			if strings.HasPrefix(string(text), "module github.com/plx-run/plx\n") {
				return dir
			}
			return ""
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		break
	}
	return ""
}
