package envsync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func lookupIn(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v, true
			}
		}
		return "", false
	}
}

func envFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vars.env")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnvironmentParsesFlagsAndFiles(t *testing.T) {
	file := envFile(t, "\ufeff# comment\n\n  \t# another\nA=1\r\n  B='quoted # \"x\" '\nC=\nHOME_SET\nD=a=b\nE=last, no line feed")
	for _, c := range []struct {
		specs, files, want []string
	}{
		{nil, nil, []string{}},
		{[]string{"X=a,b,c"}, nil, []string{"X=a,b,c"}},
		{[]string{"X="}, nil, []string{"X="}},
		{[]string{"X= $HOME 'q' \"\\\n\xff\x01"}, nil, []string{"X= $HOME 'q' \"\\\n\xff\x01"}},
		{[]string{"HOME_SET"}, nil, []string{"HOME_SET=here, and there"}},
		{[]string{"X=1", "Y=2", "X=3"}, nil, []string{"X=3", "Y=2"}},
		{[]string{"_a1=x", "PLX_LOG_LEVEL=debug", "OMP_NUM_THREADS=2"}, nil, []string{"OMP_NUM_THREADS=2", "PLX_LOG_LEVEL=debug", "_a1=x"}},
		{[]string{"AB=1", "A=2", "A0=3"}, nil, []string{"A=2", "A0=3", "AB=1"}},
		{[]string{"A=over"}, []string{file}, []string{
			"A=over", "B='quoted # \"x\" '", "C=", "D=a=b", "E=last, no line feed", "HOME_SET=here, and there",
		}},
	} {
		got, err := Environment(c.specs, c.files, lookupIn("HOME_SET=here, and there"))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q %v: got %q, %v", c.specs, c.files, got, err)
		}
	}
}

// ValueNotes names the variables whose values a shell would have expanded, without
// the values.
func TestDoubtsNameValuesThatAShellWouldExpand(t *testing.T) {
	file := envFile(t, "A=\"quoted\"\nB='x'\nC=\"over\"\nSET_HERE\nM=/m:${M}\n")
	got := ValueNotes([]string{"L=/opt/x:$L", "C=plain", "P=5$", "N=$(secret)", "Q=\"", "R=it's"}, []string{file})
	want := []string{
		"note: variable L, M, N: the $ in its value stays as it is, no variable is put in; --setup 'export NAME=...:$NAME' takes the hosts' value, --path FOLDERS comes before their PATH",
		"note: variable A, B: the quotes are a part of its value; leave them out if they are not meant",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ValueNotes([]string{"A=1", "HOME"}, nil); got != nil {
		t.Errorf("plain values: %q", got)
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                          `--env: "" is no name of a variable`,
		"=x":                        `--env: "" is no name of a variable`,
		"1A=x":                      `--env: "1A" is no name of a variable`,
		"A-B=x":                     `--env: "A-B" is no name of a variable`,
		"A B=x":                     `--env: "A B" is no name of a variable`,
		"É=x":                       `--env: "É" is no name of a variable`,
		"sk-0123456789abcdefghijkl": `--env: "sk-0123456789abcdefg"... is no name of a variable`,
		"UNSET":                     "--env: UNSET is not set on this machine",
		"A=x\x00y":                  "--env: the value of A holds a NUL byte, which no variable can",
		"RANK=0":                    "--env: RANK cannot be set: it differs for every task",
		"CUDA_VISIBLE_DEVICES":      "--env: CUDA_VISIBLE_DEVICES cannot be set: it follows the devices of the resource file",
		"PLX_JOB=x":                 "--env: PLX_JOB cannot be set: names that begin with PLX_ are plx's own",
		"PLX_ANYTHING=x":            "--env: PLX_ANYTHING cannot be set: names that begin with PLX_ are plx's own",
	} {
		if _, err := Environment([]string{spec}, nil, lookupIn()); err == nil || err.Error() != want {
			t.Errorf("%q: %v", spec, err)
		}
	}
	file := envFile(t, "A=1\n\nexport B=2\n")
	_, err := Environment(nil, []string{file}, lookupIn())
	if err == nil || err.Error() != file+`:3: "export B" is no name of a variable` {
		t.Errorf("%v", err)
	}
	var hint interface{ Hint() string }
	if !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "leave out export") {
		t.Errorf("no hint: %v", err)
	}
	if _, err := Environment(nil, []string{"/not/there"}, lookupIn()); err == nil || err.Error() != "--env-file /not/there: no such file or directory" {
		t.Errorf("%v", err)
	}
	if _, err := Environment(nil, []string{t.TempDir()}, lookupIn()); err == nil {
		t.Error("a folder was read")
	}
}

func FuzzEnvironmentFile(f *testing.F) {
	f.Add("A=1\n# c\nB='x'\r\n")
	f.Add("export A=1")
	f.Fuzz(func(t *testing.T, content string) {
		values := map[string]string{}
		if err := addLines(values, "f", []byte(content), lookupIn()); err != nil {
			if !strings.HasPrefix(err.Error(), "f:") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %q", err)
			}
			return
		}
		// Written back as a file, the variables are read as the same values.
		var again strings.Builder
		for name, value := range values {
			if !plainName().MatchString(name) || strings.ContainsAny(value, "\x00\n") {
				t.Fatalf("%q gives %q=%q", content, name, value)
			}
			again.WriteString(name + "=" + value + "\r\n")
		}
		back := map[string]string{}
		if err := addLines(back, "f", []byte(again.String()), lookupIn()); err != nil || len(back) != len(values) {
			t.Fatalf("%q: %v", again.String(), err)
		}
		for name, value := range values {
			if back[name] != value {
				t.Fatalf("%s was %q and is %q", name, value, back[name])
			}
		}
	})
}
