// Mutate measures how well a package's tests detect mistakes, by mutation
// testing. It changes the package in one place at a time, as a programmer's
// mistake would, and runs the tests on each such mutant. A mutant that passes
// all tests has survived.
//
//	go run ./internal/test/ci/mutate ./trainer/wire
//	go run ./internal/test/ci/mutate -n 20 ./launcher/ssh -run 'Test[A-M]'
//	go run ./internal/test/ci/mutate ./trainer/wire ./trainer/peers ./trainer/collective
//
// The arguments after the package are passed to go test and select the tests
// to run. If they contain no package, mutate runs the tests of the mutated
// package. If the table elsewhere lists the package, mutate runs the tests of
// the packages in the table instead.
//
// The selection of mutants depends on the commit's hash and the package. Each
// commit therefore tries different mutants, and a run can be repeated on any
// machine. Mutate changes no file of the tree: the compiler reads the mutant
// from an overlay. Mutants that do not compile are replaced by others.
//
// Gremlins, the best-maintained tool of this type, does not fit: it copies the
// module for each run, tries every covered place instead of a sample, and does
// not delete statements.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// elsewhere maps a package to all packages that contain its tests, if some of
// these tests are in other packages.
var elsewhere = map[string][]string{
	"./trainer/aggregate":         {"./trainer/aggregate", "./trainer/exchange/client"},
	"./trainer/exchange/server":   {"./trainer/exchange/client"},
	"./trainer/exchange/localsum": {"./trainer/exchange/client"},
	"./trainer/exchange/message":  {"./trainer/exchange/message", "./trainer/exchange/client"},
	"./trainer/executor/compile":  {"./trainer/executor/compile", "./trainer/executor"},
	"./trainer/executor/cpu":      {"./trainer/executor/cpu", "./trainer/executor"},
	"./launcher/agent/supervisor": {"./launcher/agent/supervisor", "./launcher/agent"},
}

func main() {
	n := flag.Int("n", 50, "how many mutants are tried")
	seed := flag.String("seed", "", "chooses the mutants in place of the commit's hash")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "mutate: want a package, such as: mutate -n 50 ./hostfile")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *n, *seed, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
}

// run tests n mutants of a package. It prints the survivors and a summary.
func run(ctx context.Context, out io.Writer, n int, seed, pkg string, tests []string) error {
	if !slices.ContainsFunc(tests, func(a string) bool { return strings.HasPrefix(a, ".") }) {
		tests = append(tests, elsewhere[pkg]...)
		if elsewhere[pkg] == nil {
			tests = append(tests, pkg)
		}
	}
	if seed == "" {
		commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
		if err != nil {
			return fmt.Errorf("read the commit that chooses the mutants, else pass -seed: %w", err)
		}
		seed = strings.TrimSpace(string(commit))
	}
	path, all, err := mutantsOfPackage(pkg)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(seed + " " + path))))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	folder, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) // the error is ignored: a folder that is left is outside the tree
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	began := time.Now()
	if said, err := test(ctx, 10*time.Minute, tests); err != nil || !strings.Contains(said, "ok  \t") {
		return fmt.Errorf("without a change the tests of %s must pass:\n%s", path, said)
	}
	limit := 10*time.Second + 4*time.Since(began)
	killed, broken, survived := 0, 0, 0
	for i := 0; i < len(all) && killed+survived < n; i++ {
		overlay, err := all[i].overlay(folder)
		if err != nil {
			return err
		}
		said, err := test(ctx, limit, append([]string{"-overlay", overlay}, tests...))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			survived++
			fmt.Fprintf(out, "survived: %s\n", strings.TrimPrefix(all[i].String(), here+"/"))
		case strings.Contains(said, " [build failed]\n"):
			broken++
		default:
			killed++
		}
	}
	if killed+survived == 0 {
		return fmt.Errorf("%s has no place that could be changed", path)
	}
	fmt.Fprintf(out, "%s at %.8s: %d of %d mutants killed (%d %%) of %d places, %d more did not compile, %.0f s\n", path, seed,
		killed, killed+survived, 100*killed/(killed+survived), len(all), broken, time.Since(began).Seconds())
	return nil
}

// mutantsOfPackage returns a package's import path and all its mutants.
func mutantsOfPackage(pkg string) (path string, all []mutant, err error) {
	said, err := exec.Command("go", "list", "-f", "{{.ImportPath}}\n{{.Dir}}{{range .GoFiles}}\n{{.}}{{end}}", pkg).Output()
	if err != nil {
		return "", nil, fmt.Errorf("list %s: %w", pkg, err)
	}
	words := strings.Split(strings.TrimSpace(string(said)), "\n")
	for _, name := range words[2:] {
		found, err := mutantsOf(filepath.Join(words[1], name))
		if err != nil {
			return "", nil, err
		}
		all = append(all, found...)
	}
	return words[0], all, nil
}

// overlay writes two files to folder: the mutated source file, and the overlay
// file that makes go test read the mutated file instead of the original. It
// returns the path of the overlay file.
func (m mutant) overlay(folder string) (path string, err error) {
	changed, path := filepath.Join(folder, "mutant.go"), filepath.Join(folder, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	return path, errors.Join(err, os.WriteFile(changed, []byte(m.apply()), 0o600), os.WriteFile(path, replace, 0o600))
}

// test runs go test and returns its output. It kills the process group of go
// test at the end, because a test that exceeds its timeout leaves child
// processes behind. It limits the memory, because a mutant may allocate in an
// endless loop.
func test(ctx context.Context, limit time.Duration, args []string) (said string, err error) {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 16000000; exec go test -count=1 -vet=off -failfast -timeout "$@"`, "sh", limit.String()}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = end() // fails if no process of the group is left, so the error does not matter
	}
	return string(out), err
}
