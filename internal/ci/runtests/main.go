// Runtests runs the tests of the module and prints what go test prints, and
// beyond that the name and the reason of every test that was skipped. With
// CI=true a skipped test makes the run fail: on the machine that decides,
// nothing may go unchecked in silence.
//
//	go run ./internal/ci/runtests               # ./...
//	go run ./internal/ci/runtests ./hostfile    # other arguments of go test
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv("CI") == "true"))
}

// run returns the status of go test, or 1 where skipping is a failure.
func run(args []string, strict bool) int {
	if len(args) == 0 {
		args = []string{"./..."}
	}
	// Two packages at once: more would only make each other's waits longer. Of a
	// package's parallel tests, which mostly wait for leases to end, four. No result
	// from before: go test does not see that programs have changed which tests build.
	// Vet is a stage of its own.
	args = append([]string{"test", "-json", "-vet=off", "-count=1", "-p", "2", "-parallel", "4", "-timeout", "25m"}, args...)
	if raceWorks() {
		args = append(args[:1], append([]string{"-race"}, args[1:]...)...)
	} else if strict {
		fmt.Fprintln(os.Stderr, "runtests: the race detector needs a C compiler")
		return 1
	} else {
		fmt.Println("skipped: the race detector, which needs a C compiler")
	}
	skipped, err := test(args)
	for _, s := range skipped {
		fmt.Println("skipped:", s)
	}
	return verdict(skipped, err, strict)
}

// test runs go test and passes its report on.
func test(args []string) ([]skip, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = environ()
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	skipped, err := report(events, os.Stdout)
	return skipped, errors.Join(err, cmd.Wait())
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

func verdict(skipped []skip, err error, strict bool) int {
	var status *exec.ExitError
	switch {
	case errors.As(err, &status) && status.ExitCode() > 0:
		return status.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "runtests:", err)
		return 1
	case strict && len(skipped) > 0:
		fmt.Fprintf(os.Stderr, "runtests: %d tests were skipped, and with CI=true none may be\n", len(skipped))
		return 1
	}
	return 0
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
