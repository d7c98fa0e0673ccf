package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of the output of go test -json. See go doc test2json and
// go help buildjson.
type event struct {
	Time        time.Time
	Action      string
	Package     string // package to which the event belongs; "" for build events
	Test        string
	Output      string
	FailedBuild string // the package that could not be built, if the event says that Package failed for this reason
}

// outcome is the result of a run of go test.
type outcome struct {
	passed  int       // number of top-level tests that passed
	skipped []string  // skipped tests, with the reason
	failed  []failure // top-level tests that failed
	broken  []string  // packages that failed although none of their tests did, with the reason
}

// failure is a top-level test that failed, or that has a failed subtest.
type failure struct {
	pkg, test string
	final     string // reason why the test must not be retried; "" if it may be retried
}

// final returns why the run has failed for good. It returns "" if the failed
// tests may be retried.
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

// finals maps reasons against a retry to patterns in the test's output. A busy
// machine cannot cause these failures.
var finals = map[string]*regexp.Regexp{
	"a data race":            regexp.MustCompile(`WARNING: DATA RACE|race detected during execution|Found \d+ data race`),
	"a crash":                regexp.MustCompile(`(?m)^\s*(panic: |fatal error: )`),
	"a process is left over": regexp.MustCompile(`processes are left|are left over|is left over`),
	"other bits":             regexp.MustCompile(`want\s+(digest|sha256)|(other|different) bits|bits are others`),
}

// aboutBits matches the names of tests that require bit-identical results. If
// such a test fails at random, the results are not reproducible, so the test
// must not be retried.
var aboutBits = regexp.MustCompile(`Bits|Digest|ThatOfOneProcess`)

// finality returns why a failure must not be retried. It returns "" if a retry
// is allowed. The parameter test is "" if a package failed outside of its
// tests.
func finality(test string, printed []byte) string {
	if aboutBits.MatchString(test) {
		return "a test about equal bits"
	}
	for why, said := range finals {
		if said.Match(printed) {
			return why
		}
	}
	return ""
}

// reader assembles the outcome from the events of go test.
type reader struct {
	outcome
	out     io.Writer
	printed map[string][]byte // maps package and test name to the output of each test that has not ended
}

// report reads the events of go test -json and writes what go test would write
// without -json: the output of failed tests and of packages. It also passes
// each event to the function also.
func report(events io.Reader, out io.Writer, also func(event)) (outcome, error) {
	r := reader{out: out, printed: map[string][]byte{}}
	for stream := json.NewDecoder(events); ; {
		var e event
		if err := stream.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return r.outcome, fmt.Errorf("read the report of go test: %w", err)
		}
		r.take(e)
		also(e)
	}
	// A test without an end event was still running when its program crashed.
	for _, rest := range r.printed {
		fmt.Fprintf(out, "%s", rest)
	}
	return r.outcome, nil
}

func (r *reader) take(e event) {
	name := e.Package + "." + e.Test
	printed := r.printed[name]
	switch e.Action {
	case "output", "build-output":
		// Leave out "PASS", which go test prints only with -v, and "[no test
		// files]".
		if e.Test == "" && e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
			fmt.Fprint(r.out, e.Output)
		}
		if e.Package != "" {
			r.printed[name] = append(printed, e.Output...)
		}
		return
	case "pass":
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			r.passed++
		}
	case "skip":
		if e.Test != "" {
			r.skipped = append(r.skipped, name+reason(printed))
		}
	case "fail":
		if e.Test == "" {
			r.packageFailed(e, printed)
		} else {
			r.testFailed(e, printed)
		}
	default:
		return
	}
	delete(r.printed, name)
}

// testFailed records a failed test. go test reports a failed subtest before
// the test that contains it.
func (r *reader) testFailed(e event, printed []byte) {
	fmt.Fprintf(r.out, "%s", printed)
	top, _, _ := strings.Cut(e.Test, "/")
	at := slices.IndexFunc(r.failed, func(f failure) bool { return f.pkg == e.Package && f.test == top })
	if at < 0 {
		at = len(r.failed)
		r.failed = append(r.failed, failure{pkg: e.Package, test: top})
	}
	if final := finality(top, printed); final != "" {
		r.failed[at].final = final
	}
}

// packageFailed records a package that failed for a reason other than a failed
// test.
func (r *reader) packageFailed(e event, printed []byte) {
	why := finality("", printed)
	if why == "" && !slices.ContainsFunc(r.failed, func(f failure) bool { return f.pkg == e.Package }) {
		why = "it failed, and no test of it"
	}
	for name := range r.printed {
		if strings.HasPrefix(name, e.Package+".") && name != e.Package+"." {
			why = "a crash" // a test without an end event was running when the program crashed
		}
	}
	if e.FailedBuild != "" {
		why = "it does not build"
	}
	if why != "" {
		r.broken = append(r.broken, e.Package+": "+why)
	}
}

var said = regexp.MustCompile(`\.go:\d+: (.*)\n`)

// reason returns ": " and the last message that a test logged before it was
// skipped.
func reason(printed []byte) string {
	all := said.FindAllSubmatch(printed, -1)
	if len(all) == 0 {
		return ""
	}
	return ": " + string(all[len(all)-1][1])
}
