package entrypoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/trainer/cluster"
)

// Kind is how a program reaches the hosts.
type Kind int

const (
	OnHost    Kind = iota // a bare command name, found on the hosts' PATH
	Local                 // an executable of this machine, sent by its content
	GoPackage             // a folder with Go sources, built for each platform and sent
	InWorkdir             // an executable in the folder of --workdir, sent with it
	InVenv                // an executable of the environment of --venv, sent with it
)

// kindOf decides as a shell does: only a name with a slash is a path. It refuses a
// program that cannot be run, with the exit status of a shell.
func kindOf(program string) (Kind, error) {
	if !strings.ContainsRune(program, '/') && program != "." && program != ".." {
		return OnHost, nil
	}
	info, err := os.Stat(program)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, refused(exit.CodeNotFound, missingHint(program), "program %s: no such file on this machine", program)
	case err != nil:
		return 0, refused(exit.CodeNotRunning, "", "program %s: %w", program, err)
	case info.IsDir():
		return GoPackage, checkPackage(program)
	}
	words, known := interpreterOf()[filepath.Ext(program)]
	switch {
	case !info.Mode().IsRegular():
		return 0, refused(exit.CodeNotRunning, "name an executable file, or a folder of Go sources", "program %s: it is no file", program)
	case known && !strings.HasPrefix(beginning(program, 2), "#!"):
		folder, script := filepath.Split(filepath.Clean(program))
		return 0, refused(exit.CodeNotRunning, fmt.Sprintf("plx launch --workdir %s %s %s", cmp.Or(filepath.Clean(folder), "."), words, script),
			"program %s: a script without a line #! that names its interpreter", program)
	case info.Mode()&0o111 == 0:
		return 0, refused(exit.CodeNotRunning, "chmod +x "+program, "program %s: it is not executable", program)
	}
	return Local, nil
}

// refused is the error of a program that cannot be run, with a shell's exit status.
func refused(code int, hint, format string, args ...any) error {
	return exit.WithHint(exit.WithCode(fmt.Errorf(format, args...), code), hint)
}

// interpreterOf has the interpreters of scripts, by the ends of their names.
var interpreterOf = sync.OnceValue(func() map[string]string {
	return map[string]string{".py": "python3", ".sh": "sh", ".bash": "bash", ".pl": "perl", ".rb": "ruby", ".jl": "julia", ".R": "Rscript"}
})

// beginning returns the first bytes of a file of this machine, most at most; "" if it cannot
// be read.
func beginning(file string, most int64) string {
	if !isFile(file) {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return "" // who sends the file reports why
	}
	defer f.Close()                                // only read
	text, _ := io.ReadAll(io.LimitReader(f, most)) // as above
	return string(text)
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// missingHint is the hint for a path of a program that names no file here. The hosts may
// have the file.
func missingHint(program string) string {
	dir, base := filepath.Split(program)
	if filepath.IsAbs(dir) {
		return fmt.Sprintf("check the path; a program that only the hosts have is a name without a folder: --path %s %s", filepath.Clean(dir), base)
	}
	return fmt.Sprintf("check the path; a command of the hosts is a name without a folder: %s", base)
}

func checkPackage(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return refused(exit.CodeNotRunning, "", "program %s: %w", folder, err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			return nil
		}
	}
	return refused(exit.CodeNotRunning, fmt.Sprintf("name the program in it, such as %s; --workdir DIR sends a folder", filepath.Join(folder, "train")),
		"program %s: a folder without Go sources", folder)
}

// linksTrainer reports whether a program links plx's trainer. Of a script, and of a command
// of the hosts, it reports false: what they start is not known here (Program.AskHosts).
func linksTrainer(ctx context.Context, kind Kind, program string) (bool, error) {
	switch kind {
	case Local:
		f, err := os.Open(program)
		if err != nil {
			return false, refused(exit.CodeNotRunning, "", "program %s: %w", program, err)
		}
		defer f.Close() // only read
		found, err := cluster.Marked(f)
		if err != nil {
			return false, refused(exit.CodeNotRunning, "", "program %s: %w", program, err)
		}
		return found, nil
	case GoPackage:
		return importsTrainer(ctx, program)
	}
	return false, nil
}

// trainerPackage is plx's trainer as go list names it.
const trainerPackage = "github.com/plx-run/plx/trainer"

// importsTrainer looks at a package folder before it is built. It refuses a package that is
// not package main: go build would make an archive of it. A package that go list refuses does
// not build, and go build says why.
func importsTrainer(ctx context.Context, folder string) (bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Name}}", ".")
	cmd.Dir = folder
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	words := strings.Fields(string(out)) // the package itself is the last
	if err != nil || len(words) == 0 {
		return false, nil
	}
	if name := words[len(words)-1]; name != "main" {
		return false, refused(exit.CodeNotRunning, "", "program %s: it is package %s, and only package main is a program", folder, name)
	}
	return slices.Contains(words, trainerPackage), nil
}
