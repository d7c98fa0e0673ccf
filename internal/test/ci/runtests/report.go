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

// event is one line of go test -json, see go doc test2json and go help buildjson.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string // of a build event
	Test        string
	Output      string
	FailedBuild string // of a package that failed: what could not be built
}

// outcome is what the tests did.
type outcome struct {
	passed  int // top-level tests
	skipped []skip
	failed  []failure
	broken  []string // packages that failed for no failed test of theirs, and why
}

// skip is a test that did not run.
type skip struct {
	test   string // package and name
	reason string
}

func (s skip) String() string {
	if s.reason == "" {
		return s.test
	}
	return s.test + ": " + s.reason
}

// failure is a top-level test that failed, itself or in its subtests.
type failure struct {
	pkg, test string
	final     string // why it may not be repeated; "" if it may
}

// finals are what makes a failure final, by what the test printed: no busy machine is
// an excuse for it.
var finals = []struct {
	why  string
	said *regexp.Regexp
}{
	{"a data race", regexp.MustCompile(`WARNING: DATA RACE|race detected during execution|Found \d+ data race`)},
	{"a crash", regexp.MustCompile(`(?m)^\s*(panic: |fatal error: )`)},
	{"a process is left over", regexp.MustCompile(`processes are left|are left over|is left over`)},
	{"other bits", regexp.MustCompile(`want\s+(digest|sha256)|(other|different) bits|bits are others`)},
}

// aboutBits are the names of tests about equal bits, which fail at random only if the
// bits are random.
var aboutBits = regexp.MustCompile(`Bits|Digest|ThatOfOneProcess`)

func finality(test, printed string) string {
	if aboutBits.MatchString(test) {
		return "a test about equal bits"
	}
	for _, f := range finals {
		if f.said.MatchString(printed) {
			return f.why
		}
	}
	return ""
}

// reader puts the report of go test together.
type reader struct {
	outcome
	costs   *costs
	out     io.Writer
	printed map[string]*strings.Builder // by package and test, until the end of the package
	failing map[string]bool             // package and top-level test
}

// report reads the events of go test and writes what go test would write
// without -json: the output of tests that failed, and of packages.
func report(events io.Reader, out io.Writer, costs *costs) (outcome, error) {
	r := reader{costs: costs, out: out, printed: map[string]*strings.Builder{}, failing: map[string]bool{}}
	for stream := json.NewDecoder(events); ; {
		var e event
		if err := stream.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return r.outcome, fmt.Errorf("read the report of go test: %w", err)
		}
		r.take(e)
		costs.take(e)
	}
	// Tests without an end were running when their program crashed.
	for _, rest := range r.printed {
		fmt.Fprint(out, rest)
	}
	return r.outcome, nil
}

func (r *reader) take(e event) {
	test := e.Package + "." + e.Test
	switch {
	case e.Action == "output" || e.Action == "build-output":
		if e.Test == "" && !isNoise(e.Output) {
			fmt.Fprint(r.out, e.Output)
		}
		if r.printed[test] == nil {
			r.printed[test] = &strings.Builder{}
		}
		r.printed[test].WriteString(e.Output)
	case e.Test == "" && e.Action == "fail":
		r.packageFailed(e)
		delete(r.printed, test)
	case e.Test == "" && (e.Action == "pass" || e.Action == "skip"):
		delete(r.printed, test)
	case e.Action == "skip":
		r.skipped = append(r.skipped, skip{test, reason(r.text(test))})
		delete(r.printed, test)
	case e.Action == "fail":
		r.testFailed(e)
		fmt.Fprint(r.out, r.text(test))
		delete(r.printed, test)
	case e.Action == "pass":
		if !strings.Contains(e.Test, "/") {
			r.passed++
		}
		delete(r.printed, test)
	}
}

// testFailed notes a failed test. Its subtests have ended before it.
func (r *reader) testFailed(e event) {
	top, _, _ := strings.Cut(e.Test, "/")
	final := finality(top, r.text(e.Package+"."+e.Test))
	r.failing[e.Package] = true
	at := slices.IndexFunc(r.failed, func(f failure) bool { return f.pkg == e.Package && f.test == top })
	if at < 0 {
		r.failed = append(r.failed, failure{e.Package, top, final})
	} else if final != "" {
		r.failed[at].final = final
	}
}

// packageFailed notes a package that failed for another reason than its tests.
func (r *reader) packageFailed(e event) {
	why := finality("", r.text(e.Package+"."))
	switch {
	case e.FailedBuild != "":
		why = "it does not build"
	case r.unfinished(e.Package):
		why = "a crash"
	case why == "" && !r.failing[e.Package]:
		why = "it failed, and no test of it"
	case why == "":
		return
	}
	r.broken = append(r.broken, e.Package+": "+why)
}

// unfinished reports whether a package ended in the middle of a test.
func (r *reader) unfinished(pkg string) bool {
	for test := range r.printed {
		if strings.HasPrefix(test, pkg+".") && test != pkg+"." {
			return true
		}
	}
	return false
}

func (r *reader) text(test string) string {
	if b := r.printed[test]; b != nil {
		return b.String()
	}
	return ""
}

// isNoise is what go test prints for a package only with -v or -json.
func isNoise(output string) bool {
	return output == "PASS\n" || strings.Contains(output, "[no test files]")
}

// reason is what a test said last before it was skipped, without the place in
// the source.
func reason(output string) string {
	var last string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			last = line
		}
	}
	if _, rest, found := strings.Cut(last, ".go:"); found {
		if _, message, found := strings.Cut(rest, ": "); found {
			return message
		}
	}
	return last
}
