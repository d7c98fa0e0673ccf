// Runtests runs the tests of a module and prints what go test prints, and beyond that the
// name and the reason of every test that was skipped. With CI=true a skipped test makes the
// run fail: on the machine that decides, nothing may go unchecked in silence.
//
//	go run ./internal/test/ci/runtests -race ./...
//	go run ./internal/test/ci/runtests -run='^TestX$' ./hostfile    # arguments of go test, as -name=value
//
// A test that fails is repeated once, alone, after all others have ended. If it passes
// then, the run goes well and names the test at its end ("flaky: PACKAGE Test"); mend that
// test next. What no busy machine explains is never repeated: see finality.
//
// Its last lines are the packages that took most processor time, see costs.
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

// run returns why the tests do not pass.
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

// goFlags are those of go test. Three packages at once on two cores, and of a
// package's parallel tests four: much of their time is waiting. No result from before:
// go test does not see that programs have changed which tests build. Vet is a stage of
// its own. The timeout is for a package that hangs; the longest one takes minutes.
var goFlags = []string{"test", "-json", "-vet=off", "-count=1", "-p=3", "-parallel=4", "-timeout=60m"}

// mostRepeated is how many tests may fail at first. More is no accident.
const mostRepeated = 3

// runAndRepeat runs tests by test, which is go test with further arguments, and repeats
// those that failed.
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

// test runs go and passes its report on. Under the race detector a program would sleep for
// a second before it ends, in case its goroutines still do something: here that is each of
// some hundred tests and programs of theirs, when all that they were asked to do is done.
func test(args []string, spent *costs) (outcome, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=50"}, os.Environ()...) // one that is set wins
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
