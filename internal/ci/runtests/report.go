package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of go test -json, see go doc test2json and go help buildjson.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build event
	Test       string
	Output     string
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

// report reads the events of go test and writes what go test would write
// without -json: the output of tests that failed, and of packages.
func report(events io.Reader, out io.Writer) ([]skip, error) {
	var skipped []skip
	printed := map[string]*strings.Builder{} // by test, until its end
	for stream := json.NewDecoder(events); ; {
		var e event
		if err := stream.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return skipped, fmt.Errorf("read the report of go test: %w", err)
		}
		test := e.Package + "." + e.Test
		switch {
		case e.Test == "":
			if !isNoise(e.Output) {
				fmt.Fprint(out, e.Output)
			}
		case e.Action == "output":
			if printed[test] == nil {
				printed[test] = &strings.Builder{}
			}
			printed[test].WriteString(e.Output)
		case e.Action == "skip":
			skipped = append(skipped, skip{test, reason(text(printed, test))})
			delete(printed, test)
		case e.Action == "fail":
			fmt.Fprint(out, text(printed, test))
			delete(printed, test)
		case e.Action == "pass":
			delete(printed, test)
		}
	}
	// Tests without an end were running when their program crashed.
	for _, rest := range printed {
		fmt.Fprint(out, rest)
	}
	return skipped, nil
}

func text(printed map[string]*strings.Builder, test string) string {
	if b := printed[test]; b != nil {
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
