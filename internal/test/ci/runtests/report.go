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
	Package     string // "" of a build
	Test        string
	Output      string
	FailedBuild string // of a package that failed: what could not be built
}

// outcome is what the tests did.
type outcome struct {
	passed  int       // top-level tests
	skipped []string  // tests, and why
	failed  []failure // top-level tests
	broken  []string  // packages that failed for no failed test of theirs, and why
}

// failure is a top-level test that failed, itself or in its subtests.
type failure struct {
	pkg, test string
	final     string // why it may not be repeated; "" if it may
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

// finals are what makes a failure final, by what the test printed: no busy machine is
// an excuse for it.
var finals = map[string]*regexp.Regexp{
	"a data race":            regexp.MustCompile(`WARNING: DATA RACE|race detected during execution|Found \d+ data race`),
	"a crash":                regexp.MustCompile(`(?m)^\s*(panic: |fatal error: )`),
	"a process is left over": regexp.MustCompile(`processes are left|are left over|is left over`),
	"other bits":             regexp.MustCompile(`want\s+(digest|sha256)|(other|different) bits|bits are others`),
}

// aboutBits are the names of tests about equal bits, which fail at random only if the
// bits are random.
var aboutBits = regexp.MustCompile(`Bits|Digest|ThatOfOneProcess`)

// finality says why a failed test, or a package without the name of one, may not be repeated.
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

// reader puts the report of go test together.
type reader struct {
	outcome
	out     io.Writer
	printed map[string][]byte // by package and test, until its end
}

// report reads the events of go test and writes what go test would write without -json:
// the output of tests that failed, and of packages. It shows each event to also.
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
	// Tests without an end were running when their program crashed.
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
		// The rest is what go test prints for a package only with -v or -json.
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

// testFailed notes a failed test. Its subtests have ended before it.
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

// packageFailed notes a package that failed for another reason than its tests.
func (r *reader) packageFailed(e event, printed []byte) {
	why := finality("", printed)
	if why == "" && !slices.ContainsFunc(r.failed, func(f failure) bool { return f.pkg == e.Package }) {
		why = "it failed, and no test of it"
	}
	for name := range r.printed {
		if strings.HasPrefix(name, e.Package+".") && name != e.Package+"." {
			why = "a crash" // in the middle of a test
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

// reason is ": " and what a test said last before it was skipped.
func reason(printed []byte) string {
	all := said.FindAllSubmatch(printed, -1)
	if len(all) == 0 {
		return ""
	}
	return ": " + string(all[len(all)-1][1])
}
