// Runtests runs the tests of the module and prints what go test prints, and
// beyond that the name and the reason of every test that was skipped. With
// CI=true a skipped test makes the run fail: on the machine that decides,
// nothing may go unchecked in silence.
//
//	go run ./internal/test/ci/runtests               # ./...
//	go run ./internal/test/ci/runtests ./hostfile    # other arguments of go test, as -name=value
//
// A test that fails is repeated once, alone, after all others have ended. If it
// passes then, the run goes well and names the test at its end ("flaky: PACKAGE
// Test"); mend that test next. What no busy machine explains is never repeated:
// see failure.
//
// Its last lines are the packages that took most processor time. A test that took
// more than its share is named there, and fails the run if its tests ran one after the
// other (-parallel=1), each with all processors. Each test's time is in
// build/test-costs.tsv.
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
	if len(os.Args) > 3 && os.Args[1] == enterArg {
		fmt.Fprintln(os.Stderr, "runtests:", enter(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	os.Exit(run(os.Args[1:], os.Getenv("CI") == "true"))
}

// run returns 0 if all is well, and 1 where skipping is a failure.
func run(args []string, strict bool) int {
	if len(args) == 0 {
		args = []string{"./..."}
	}
	flags := goFlags
	if raceWorks() {
		flags = append(flags, "-race")
	} else if strict {
		fmt.Fprintln(os.Stderr, "runtests: the race detector needs a C compiler")
		return 1
	} else {
		fmt.Println("skipped: the race detector, which needs a C compiler")
	}
	m := newMeter()
	defer m.remove()
	flags = append(flags, m.flags()...)
	spent := newCosts(m.of)
	r := runner{test: func(args ...string) (outcome, error) { return test(append(flags, args...), spent) }}
	err := r.run(args)
	for _, s := range r.skipped {
		fmt.Println("skipped:", s)
	}
	for _, f := range r.flaky {
		fmt.Println("flaky:", f.pkg, f.test)
	}
	if m.root != "" {
		spent.print(os.Stdout)
		err = cmp.Or(err, spent.write("build/test-costs.tsv"))
		if !slices.Contains(args, "-tags=long") { // a long test may take what it needs
			err = cmp.Or(err, spent.check(os.Stdout, slices.Contains(args, "-parallel=1")))
		}
	} else {
		fmt.Println("processor time was not measured: only root may make control groups")
	}
	if err == nil && strict && len(r.skipped) > 0 {
		err = fmt.Errorf("%d tests were skipped, and with CI=true none may be", len(r.skipped))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		return 1
	}
	return 0
}

// goFlags are those of go test. Three packages at once on two cores, and of a
// package's parallel tests four: much of their time is waiting. No result from before:
// go test does not see that programs have changed which tests build. Vet is a stage of
// its own. The timeout is for a package that hangs; the longest one takes minutes.
var goFlags = []string{"test", "-json", "-vet=off", "-count=1", "-p=3", "-parallel=4", "-timeout=60m"}

// mostRepeated is how many tests may fail at first. More is no accident.
const mostRepeated = 3

// runner runs tests and repeats those that failed.
type runner struct {
	test    func(args ...string) (outcome, error) // go test with further arguments
	skipped []skip
	flaky   []failure // failed, and passed when they were repeated
}

// run returns why the tests do not pass.
func (r *runner) run(args []string) error {
	o, err := r.test(args...)
	r.skipped = o.skipped
	if err == nil {
		return nil
	}
	if why := o.final(); why != "" {
		return fmt.Errorf("%w; nothing is repeated: %s", err, why)
	}
	for _, f := range o.failed {
		fmt.Printf("=== again, alone: %s %s\n", f.pkg, f.test)
		o, err := r.test(append(flagsOf(args), "-run=^"+f.test+"$", f.pkg)...)
		if err != nil {
			return fmt.Errorf("%s %s failed twice: %w", f.pkg, f.test, err)
		}
		if o.passed == 0 {
			return fmt.Errorf("%s %s failed, and was not repeated: there is no such test with the flags %q", f.pkg, f.test, flagsOf(args))
		}
		r.flaky = append(r.flaky, f)
	}
	return nil
}

// flagsOf returns the flags of a run, of the form -name=value, without the choice of tests.
func flagsOf(args []string) (flags []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "-run") {
			flags = append(flags, a)
		}
	}
	return flags
}

// final says why a failed run stays one. It is "" if its failures may be repeated.
func (o outcome) final() string {
	for _, f := range o.failed {
		if f.final != "" {
			return f.pkg + " " + f.test + ": " + f.final
		}
	}
	switch {
	case len(o.broken) > 0:
		return o.broken[0]
	case len(o.failed) == 0:
		return "no test failed"
	case len(o.failed) > mostRepeated:
		return fmt.Sprintf("%d tests failed, more than %d", len(o.failed), mostRepeated)
	}
	return ""
}

// test runs go and passes its report on.
func test(args []string, spent *costs) (outcome, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = environ()
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	o, err := report(events, os.Stdout, spent)
	return o, errors.Join(err, cmd.Wait())
}

// environ is the environment of the tests. Under the race detector a program would
// sleep for a second before it ends, in case its goroutines still do something:
// here that is each of some hundred tests and programs of theirs, when all that
// they were asked to do is done.
func environ() []string {
	if _, set := os.LookupEnv("GORACE"); set {
		return os.Environ()
	}
	return append(os.Environ(), "GORACE=atexit_sleep_ms=50")
}

// raceWorks says whether the race detector's C parts can be linked here.
func raceWorks() bool {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	_, err := exec.LookPath(compiler)
	return err == nil && os.Getenv("CGO_ENABLED") != "0"
}
