package importtest

import (
	"fmt"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// What a package and a type may be at most: past that nobody holds it in mind.
const (
	mostFiles       = 25   // of a package, that are not tests
	mostCode        = 2500 // lines of a package that are neither blank nor comment
	mostMethods     = 30   // of a type, see source.methods
	mostSpread      = 4    // files that hold them
	mostFields      = 20   // of a struct that is no configuration
	largestCircle   = 12   // files of a package that refer to each other
	mostCallbacks   = 3    // that a package is handed
	widestInterface = 3    // methods of an interface
)

// A breach is one measure that one package does not hold.
type breach struct {
	pkg  string
	what string // the measure and the name that breaks it, without figures
	why  string // with figures
}

// excepted holds breaches that stay, with the reason: "package: what".
var excepted = map[string]string{
	"trainer: callbacks":                   "the API that programs use: train, build, a schedule, a feed",
	"trainer/hooks: callbacks":             "functions that the program hands over are its subject",
	"launcher/protocol: fields of Message": "a message of the wire: exactly one field is set, each field is a JSON key",
}

func TestStructure(t *testing.T) {
	if len(excepted) > 5 {
		t.Errorf("%d exceptions, more than five", len(excepted))
	}
	used := map[string]bool{}
	for _, s := range load(t, "./...") {
		found, err := s.breaches()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range found {
			key := b.pkg + ": " + b.what
			if excepted[key] != "" {
				used[key] = true
				continue
			}
			t.Errorf("%s: %s: %s", b.pkg, b.what, b.why)
		}
	}
	for key := range excepted {
		if !used[key] {
			t.Errorf("%q needs no exception", key)
		}
	}
}

func (s source) breaches() ([]breach, error) {
	var all []breach
	add := func(what, format string, args ...any) {
		all = append(all, breach{s.path, what, fmt.Sprintf(format, args...)})
	}
	files, lines, err := s.code()
	if err != nil {
		return nil, err
	}
	if files > mostFiles {
		add("files", "%d", files)
	}
	if lines > mostCode {
		add("code", "%d lines", lines)
	}
	s.typeBreaches(add)
	for _, circle := range s.circles() {
		if len(circle) > largestCircle {
			add("circle", "%d of %d files: %s", len(circle), files, strings.Join(circle, " "))
		}
	}
	for _, line := range s.foreignAssignments() {
		_, what, _ := strings.Cut(line, ": ")
		add(what, "%s", line)
	}
	for _, line := range s.mistakesWithoutHints() {
		add("mistake without a hint", "%s", line)
	}
	if c := s.callbacks(); len(c) > mostCallbacks {
		add("callbacks", "%d: %s", len(c), strings.Join(c, " "))
	}
	for _, line := range s.wideInterfaces(widestInterface) {
		what, _, _ := strings.Cut(line, " has")
		add(what, "%s", line)
	}
	return all, nil
}

func (s source) typeBreaches(add func(what, format string, args ...any)) {
	for t, methods := range s.methods() {
		files := map[string]bool{}
		for _, file := range methods {
			files[file] = true
		}
		if len(methods) > mostMethods {
			add("methods of "+t.Name(), "%d", len(methods))
		}
		if len(files) > mostSpread {
			add("spread of "+t.Name(), "%d methods in %d files: %s", len(methods), len(files), strings.Join(slices.Sorted(maps.Keys(files)), " "))
		}
	}
	for _, name := range s.Types.Scope().Names() {
		t, ok := s.Types.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		if st, ok := t.Type().Underlying().(*types.Struct); ok && st.NumFields() > mostFields && !isConfiguration(name) {
			add("fields of "+name, "%d", st.NumFields())
		}
	}
}

// isConfiguration reports whether a struct is one by its name: it is filled by
// a caller and then only read.
func isConfiguration(name string) bool {
	for _, suffix := range []string{"Config", "config", "Options", "options", "Settings", "settings", "Plan", "Spec", "Declaration"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func TestMeasuresFindWhatIsWrong(t *testing.T) {
	if parts := connected(map[string]map[string]bool{
		"a": {"b": true}, "b": {"c": true}, "c": {"a": true}, "d": {"a": true}, "e": {"f": true}, "f": {"e": true}, "g": {},
	}); fmt.Sprint(parts) != "[[a b c] [e f]]" {
		t.Errorf("strongly connected: %v", parts)
	}
	for _, s := range load(t, "./internal/importtest/testdata/wrong") {
		if lines := fmt.Sprint(s.foreignAssignments()); lines != "[wrong.go:23: Reach assigns inner.count wrong.go:24: Reach assigns inner.names]" {
			t.Errorf("assignments: %s", lines)
		}
		methods := 0
		for _, m := range s.methods() {
			methods = max(methods, len(m))
		}
		if methods != 4 {
			t.Errorf("Outer has %d methods, want Reach, its function and two that it promotes", methods)
		}
		if c := s.callbacks(); len(c) != 2 {
			t.Errorf("callbacks: %v", c)
		}
		if w := s.wideInterfaces(1); len(w) != 1 {
			t.Errorf("interfaces: %v", w)
		}
	}
}
