package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

// Kind is how the user names a program.
type Kind int

const (
	OnHost    Kind = iota // a bare command name, found on the hosts' PATH
	Local                 // an executable of this machine, shipped
	GoPackage             // a folder with Go sources, built for each platform
)

// KindOf decides as a shell does: only a name with a slash is a path. It refuses a
// program that cannot be run, with the exit status of a shell.
func KindOf(program string) (Kind, error) {
	if !strings.ContainsRune(program, '/') && program != "." && program != ".." {
		return OnHost, nil
	}
	info, err := os.Stat(program)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, exit.WithCode(fmt.Errorf("program %s: no such file on this machine", program), 127)
	case err != nil:
		return 0, exit.WithCode(fmt.Errorf("program %s: %w", program, err), 126)
	case info.IsDir():
		return GoPackage, checkPackage(program)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return 0, exit.WithCode(fmt.Errorf("program %s: it is not executable", program), 126)
	}
	return Local, nil
}

func checkPackage(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return exit.WithCode(fmt.Errorf("program %s: %w", folder, err), 126)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			return nil
		}
	}
	return exit.WithCode(fmt.Errorf("program %s: a folder without Go sources", folder), 126)
}

// program returns the program for p, and builds it if it is a package folder.
func (s *Set) program(ctx context.Context, program string, k Kind, p envsync.Platform, printer *console.Printer) (envsync.Blob, error) {
	if k != GoPackage {
		return envsync.FileBlob(program)
	}
	if err := checkMain(ctx, program); err != nil {
		return envsync.Blob{}, err
	}
	printer.Printf("building %s for %s", program, p)
	b, err := s.goBuild(ctx, program, packageName(program), p)
	if err != nil && ctx.Err() == nil {
		err = exit.WithCode(err, 126)
	}
	return b, err
}

// checkMain refuses a package that is not package main: go build would make an
// archive of it.
func checkMain(ctx context.Context, folder string) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.Name}}", ".")
	cmd.Dir = folder
	name, err := cmd.Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got := strings.TrimSpace(string(name)); err == nil && got != "main" {
		return exit.WithCode(fmt.Errorf("program %s: it is package %s, and only package main is a program", folder, got), 126)
	}
	return nil // go build reports every other fault better
}

// packageName returns the name that go build gives the program.
func packageName(folder string) string {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return "program"
	}
	return filepath.Base(abs)
}

// goBuild builds the package in a folder without cgo, so that the binary runs with every
// C library.
func (s *Set) goBuild(ctx context.Context, folder, name string, p envsync.Platform) (envsync.Blob, error) {
	out := filepath.Join(s.scratch, p.OS+"-"+p.Arch, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch)
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return envsync.Blob{}, context.Cause(ctx)
	}
	if err != nil {
		return envsync.Blob{}, fmt.Errorf("go build %s for %s: %w\n%s", folder, p, err, strings.TrimSpace(string(said)))
	}
	return envsync.FileBlob(out)
}
