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

// Kind is the way in which a program reaches the hosts.
type Kind int

const (
	OnHost    Kind = iota // name of a command on the hosts' PATH; nothing is sent
	Local                 // local executable file, which is sent to the hosts
	GoPackage             // local folder of a Go package, which is built for each platform and sent
	InWorkdir             // executable in the folder of --workdir, which is sent with that folder
	InVenv                // executable in the virtual environment of --venv, which is sent with it
)

// kindOf returns how a program reaches the hosts. As in a shell, only a name
// with a slash is a path. If the program cannot be run, the error carries the
// exit status that a shell would return, 126 or 127.
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
		return 0, refused(exit.CodeNotRunning, "name an executable file, or a folder of Go sources", "program %s: it is not a regular file", program)
	case known && !strings.HasPrefix(beginning(program, 2), "#!"):
		folder, script := filepath.Split(filepath.Clean(program))
		return 0, refused(exit.CodeNotRunning, fmt.Sprintf("plx launch --workdir %s %s %s", cmp.Or(filepath.Clean(folder), "."), words, script),
			"program %s: a script without a #! line that names its interpreter", program)
	case info.Mode()&0o111 == 0:
		return 0, refused(exit.CodeNotRunning, "chmod +x "+program, "program %s: it is not executable", program)
	}
	return Local, nil
}

// refused returns the error for a program that cannot be run. code is the exit
// status that a shell would return: 126 or 127.
func refused(code int, hint, format string, args ...any) error {
	return exit.WithHint(exit.WithCode(fmt.Errorf(format, args...), code), hint)
}

// interpreterOf maps the extension of a script's name to the script's
// interpreter.
var interpreterOf = sync.OnceValue(func() map[string]string {
	return map[string]string{".py": "python3", ".sh": "sh", ".bash": "bash", ".pl": "perl", ".rb": "ruby", ".jl": "julia", ".R": "Rscript"}
})

// beginning returns the first bytes of a local file, at most the given number.
// It returns "" if the file cannot be read.
func beginning(file string, most int64) string {
	if !isFile(file) {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return "" // ignore the error: sending the file will fail and report it
	}
	defer f.Close()                                // the file was only read
	text, _ := io.ReadAll(io.LimitReader(f, most)) // ignore the error: sending the file will fail and report it
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

// missingHint returns the hint for a program whose path does not exist on this
// machine. The user may have meant a program on the hosts.
func missingHint(program string) string {
	dir, base := filepath.Split(program)
	if filepath.IsAbs(dir) {
		return fmt.Sprintf("check the path; for a program that only the hosts have, give its name without a folder: --path %s %s", filepath.Clean(dir), base)
	}
	return fmt.Sprintf("check the path; for a command on the hosts' PATH, give its name without a folder: %s", base)
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

// linksTrainer reports whether a program contains plx's trainer package. It
// can find this out only for a local executable and a Go package. For other
// programs it returns false, see Program.AskHosts.
func linksTrainer(ctx context.Context, kind Kind, program string) (bool, error) {
	switch kind {
	case Local:
		f, err := os.Open(program)
		if err != nil {
			return false, refused(exit.CodeNotRunning, "", "program %s: %w", program, err)
		}
		defer f.Close() // the file was only read
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

// trainerPackage is the import path of plx's trainer package.
const trainerPackage = "github.com/plx-run/plx/trainer"

// importsTrainer reports whether a Go package imports plx's trainer package.
// It returns an error if the package is not package main, because go build
// would make no program of it. If go list fails, importsTrainer returns false:
// go build will fail too, and report the reason.
func importsTrainer(ctx context.Context, folder string) (bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Name}}", ".")
	cmd.Dir = folder
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	words := strings.Fields(string(out)) // go list prints dependencies first, so the last line is the package itself
	if err != nil || len(words) == 0 {
		return false, nil
	}
	if name := words[len(words)-1]; name != "main" {
		return false, refused(exit.CodeNotRunning, "", "program %s: it is package %s, and only package main is a program", folder, name)
	}
	return slices.Contains(words, trainerPackage), nil
}
