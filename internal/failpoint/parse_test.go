package failpoint

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]map[place]action{
		"a=error":                        {{"a", 0}: "error"},
		"depot.send=kill@3":              {{"depot.send", 3}: "kill"},
		"a=stop@1;b_B-2=short;a=error@2": {{"a", 1}: "stop", {"b_B-2", 0}: "short", {"a", 2}: "error"},
		"a=enospc@18446744073709551615":  {{"a", 1<<64 - 1}: "enospc"},
	} {
		f, err := parse(text)
		if err != nil || !maps.Equal(f.actions, want) {
			t.Errorf("%s: %v, %v", text, f, err)
		}
	}
	f, err := parse("a=error@/tmp/x;a=kill@/y;a=exit@2;b=stop@/z@=")
	if want := map[string][]awaited{"a": {{"/tmp/x", "error"}, {"/y", "kill"}}, "b": {{"/z@=", "stop"}}}; err != nil || !reflect.DeepEqual(f.files, want) ||
		!maps.Equal(f.actions, map[place]action{{"a", 2}: "exit"}) || f.hits["b"] == nil {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := parse(""); f != nil || err != nil {
		t.Errorf("nothing: %v, %v", f, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a":                          `entry "a": no =, want name=action or name=action@n`,
		"a=error;":                   `entry "": no =, want name=action or name=action@n`,
		";":                          `entry "": no =, want name=action or name=action@n`,
		"=error":                     `entry "=error": name "", want letters, digits and . - _`,
		" a=error":                   `entry " a=error": name " a", want letters, digits and . - _`,
		"a\nb=error":                 `entry "a\nb=error": name "a\nb", want letters, digits and . - _`,
		"a=":                         `entry "a=": action "", want one of enospc, error, exit, kill, short, stop`,
		"a=KILL":                     `entry "a=KILL": action "KILL", want one of enospc, error, exit, kill, short, stop`,
		"a=kill@":                    `entry "a=kill@": hit "", want a whole number from 1 on, or a file's path from the root`,
		"a=kill@0":                   `entry "a=kill@0": hit "0", want a whole number from 1 on, or a file's path from the root`,
		"a=kill@-1":                  `entry "a=kill@-1": hit "-1", want a whole number from 1 on, or a file's path from the root`,
		"a=kill@1@2":                 `entry "a=kill@1@2": hit "1@2", want a whole number from 1 on, or a file's path from the root`,
		"a=kill@2 ":                  `entry "a=kill@2 ": hit "2 ", want a whole number from 1 on, or a file's path from the root`,
		"a=kill;a=error":             `entry "a=error": that hit of a has an entry already`,
		"a=kill@2;b=kill;a=error@02": `entry "a=error@02": that hit of a has an entry already`,
	} {
		if f, err := parse(text); f != nil || err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v, want %s", text, f, err, want)
		}
	}
}

// What is read, written down again, means the same.
func FuzzParse(f *testing.F) {
	f.Add("checkpoint.rename=kill@2;checkpoint.write=enospc")
	f.Add("a=error;b=stop@1;a=short@99")
	f.Add("a=kill@;=;@=error")
	f.Add("a=kill@/x;a=error@/y")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := parse(text)
		if err != nil || read == nil {
			if err == nil && text != "" {
				t.Fatal("nothing is wanted")
			}
			return
		}
		var entries []string
		for at, what := range read.actions {
			entry := fmt.Sprintf("%s=%s", at.name, what)
			if at.hit > 0 {
				entry += fmt.Sprintf("@%d", at.hit)
			}
			entries = append(entries, entry)
			if read.hits[at.name] == nil {
				t.Fatalf("hits of %s are not counted", at.name)
			}
		}
		for name, files := range read.files {
			for _, w := range files {
				entries = append(entries, fmt.Sprintf("%s=%s@%s", name, w.what, w.file))
			}
			if read.hits[name] == nil {
				t.Fatalf("hits of %s are not counted", name)
			}
		}
		again, err := parse(strings.Join(entries, ";"))
		if err != nil || !maps.Equal(read.actions, again.actions) || !reflect.DeepEqual(read.files, again.files) {
			t.Fatalf("%v, then %v: %v", read.actions, again, err)
		}
	})
}
