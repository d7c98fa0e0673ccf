// Runtests runs the tests of a module and prints what go test prints. In
// addition, it prints the name of every skipped test with the reason. With
// CI=true, a skipped test fails the run, so that CI never passes with
// unchecked code.
//
//	go run ./internal/test/ci/runtests -race ./...
//	go run ./internal/test/ci/runtests -run='^TestX$' ./hostfile    # arguments of go test, as -name=value
//
// If a test fails, runtests runs it once more, alone, after all other tests
// have ended. If the test passes then, the run succeeds and ends with the line
// "flaky: PACKAGE Test"; fix that test next. Failures that a busy machine
// cannot explain, such as data races, are not retried: see the function
// finality.
//
// At the end, runtests prints the packages that took the most CPU time.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Getenv("CI") == "true"); err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

// run runs the tests. It returns an error if they do not pass.
func run(args []string, strict bool) error {
	spent, err := newCosts()
	if err != nil {
		return err
	}
	defer spent.remove()
	flags := append(slices.Clone(goFlags), spent.flags()...)
	skipped, flaky, err := runAndRepeat(func(args ...string) (outcome, error) { return test(append(flags, args...), spent) }, args)
	for _, s := range skipped {
		fmt.Println("skipped:", s)
	}
	for _, f := range flaky {
		fmt.Println("flaky:", f.pkg, f.test)
	}
	if strict && len(skipped) > 0 {
		err = cmp.Or(err, fmt.Errorf("%d tests were skipped, and with CI=true none may be", len(skipped)))
	}
	return cmp.Or(err, spent.tell(os.Stdout, args))
}

// goFlags are the flags of go test. -p and -parallel start more tests than
// there are cores, because tests spend much time waiting. -count=1 disables
// the test cache, because go test does not notice changes to programs that
// tests build. -vet=off is there because CI runs vet separately. -timeout
// limits a package that hangs; the slowest package takes minutes.
var goFlags = []string{"test", "-json", "-vet=off", "-count=1", "-p=3", "-parallel=4", "-timeout=60m"}

// mostRepeated is the maximum number of failed tests that are retried. If more
// tests fail, their failures are not a coincidence.
const mostRepeated = 3

// runAndRepeat runs all tests and then retries those that failed. The
// parameter test is a function that runs go test with additional arguments.
func runAndRepeat(test func(args ...string) (outcome, error), args []string) (skipped []string, flaky []failure, err error) {
	o, err := test(args...)
	if err == nil {
		return o.skipped, nil, nil
	}
	if why := o.final(); why != "" {
		return o.skipped, nil, fmt.Errorf("%w; nothing is repeated: %s", err, why)
	}
	flags := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return !strings.HasPrefix(a, "-") || strings.HasPrefix(a, "-run") })
	for _, f := range o.failed {
		fmt.Printf("=== again, alone: %s %s\n", f.pkg, f.test)
		again, err := test(append(slices.Clone(flags), "-run=^"+f.test+"$", f.pkg)...)
		if err != nil {
			return o.skipped, flaky, fmt.Errorf("%s %s failed twice: %w", f.pkg, f.test, err)
		}
		if again.passed == 0 {
			return o.skipped, flaky, fmt.Errorf("%s %s failed, and was not repeated: there is no such test with the flags %q", f.pkg, f.test, flags)
		}
		flaky = append(flaky, f)
	}
	return o.skipped, flaky, nil
}

// test runs the go command and prints its report. It sets the variable GORACE
// to shorten the second for which every program with the race detector sleeps
// at exit, because the tests start hundreds of programs.
func test(args []string, spent *costs) (outcome, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=50"}, os.Environ()...) // if GORACE is set in the environment too, that value wins, because it comes last
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	o, err := report(events, os.Stdout, spent.take)
	return o, errors.Join(err, cmd.Wait())
}
