package config

import (
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fieldOf returns the name of the field for a flag, and whether the field
// negates the flag.
func fieldOf(name string) (field string, negated bool) {
	for _, word := range strings.Split(name, "-") {
		if word == "ckpt" {
			word = "checkpoint"
		}
		field += strings.ToUpper(word[:1]) + word[1:]
	}
	if _, found := reflect.TypeFor[Config]().FieldByName(field); found {
		return field, false
	}
	return "No" + field, true
}

// begun lists the fields that Parallelize cannot change.
var begun = []string{"Seed", "VirtualWorkers", "Replicas", "Accumulate", "Device", "CheckpointDir", "CheckpointKeep"}

// choices has, for fields that accept only certain values, one value to set in
// code and one for the flag.
var choices = map[string][2]string{
	"Arch": {"allreduce", "ps"}, "Sync": {"sync", "ssp:3"}, "Device": {"cpu", "gpu"}, "Balance": {"bytes", "load"},
	"CombineRows":  {"add", "average"},
	"ProfileSteps": {"3", "4:9"}, "ProfileWorkers": {"1", "0"},
}

// chosen returns a Config with the field set, and a different value for its
// flag.
func chosen(field string, negated bool) (code Config, value string) {
	needed := Config{}
	switch {
	case strings.HasPrefix(field, "CheckpointEvery"):
		needed.CheckpointDir = "folder"
	case field == "ProfileWorkers":
		needed.ProfileSteps = "1"
	}
	code = needed
	switch f := reflect.ValueOf(&code).Elem().FieldByName(field); f.Kind() {
	case reflect.Bool:
		f.SetBool(true)
		value = map[bool]string{false: "false", true: "true"}[negated]
	case reflect.String:
		two := [2]string{"code", "flag"}
		if some, found := choices[field]; found {
			two = some
		}
		f.SetString(two[0])
		value = two[1]
	case reflect.Uint64:
		f.SetUint(7)
		value = "5"
	default:
		f.SetInt(7)
		value = "5"
	}
	return code, value
}

// begin combines the program's configuration with a command line, as Main
// does.
func begin(t *testing.T, code Config, arguments ...string) Effective {
	t.Helper()
	c := Default().With(code)
	if err := c.parse(flag.NewFlagSet("train", flag.ContinueOnError), arguments, true); err != nil {
		t.Fatal(err)
	}
	return c
}

// Each field can be set in Main and in Parallelize, and its flag overrides it.
func TestEachFlagHasAFieldAndWins(t *testing.T) {
	fields := reflect.TypeFor[Config]()
	for _, name := range names() {
		field, negated := fieldOf(name)
		if _, found := fields.FieldByName(field); !found {
			t.Errorf("--%s has no field %s", name, field)
			continue
		}
		code, value := chosen(field, negated)
		at := func(c Config) any { return reflect.ValueOf(c).FieldByName(field).Interface() }
		alone := begin(t, code)
		if at(alone.Config) != at(code) {
			t.Errorf("%s of Main is %v, want %v", field, at(alone.Config), at(code))
		}
		// The same flag without the program's value for the field, but with
		// the other fields that the flag requires.
		bare := code
		reflect.ValueOf(&bare).Elem().FieldByName(field).SetZero()
		want := begin(t, bare, "--"+name+"="+value)
		if at(want.Config) == at(alone.Config) {
			t.Fatalf("--%s=%s changes nothing", name, value)
		}
		if got := begin(t, code, "--"+name+"="+value); !reflect.DeepEqual(got.Config, want.Config) {
			t.Errorf("--%s=%s over Main: %+v, want %+v", name, value, got.Config, want.Config)
		}
		if got, err := want.Complete(code); err != nil || !reflect.DeepEqual(got.Config, want.Config) {
			t.Errorf("--%s=%s over Parallelize: %+v, %v, want %+v", name, value, got.Config, err, want.Config)
		}
		late, err := begin(t, bare).Complete(code)
		switch early := slices.Contains(begun, field); {
		case early && (err == nil || !strings.Contains(err.Error(), field+" is")):
			t.Errorf("%s of Parallelize: %v", field, err)
		case !early && (err != nil || at(late.Config) != at(code)):
			t.Errorf("%s of Parallelize is %v, %v", field, at(late.Config), err)
		}
	}
}

// The comment of each field names its flag, or the field is known to have
// none.
func TestEachFieldNamesItsFlag(t *testing.T) {
	flags := map[string]string{}
	for _, name := range names() {
		field, negated := fieldOf(name)
		flags[field] = "Flag --" + name
		if negated {
			flags[field] += "=false"
		}
	}
	for _, field := range []string{"GlobalBatch", "ShardBatch", "ClipNorm", "MeasureNorm", "AtEndOfData", "Hooks", "StartTimeout", "PeerTimeout", "TuneAfterSteps", "Report"} {
		flags[field] = ""
	}
	file, err := parser.ParseFile(token.NewFileSet(), "fields.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Config" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			name := f.Names[0].Name
			want, known := flags[name]
			text := strings.Join(strings.Fields(f.Doc.Text()), " ")
			if !known || !strings.HasPrefix(text, name+" ") || want != "" && !strings.HasSuffix(text, want+".") {
				t.Errorf("%s: %q, want %q at its end", name, text, want)
			}
			delete(flags, name)
		}
		return false
	})
	if len(flags) > 0 {
		t.Errorf("no field for %v", flags)
	}
}

// Fields that exclude each other are an error wherever they are set, and a
// flag can unset the program's field.
func TestFieldsThatExcludeEachOther(t *testing.T) {
	var helpful interface{ Hint() string }
	c := Default().With(Config{CheckpointDir: "folder", CheckpointEverySteps: 3})
	err := c.parse(flag.NewFlagSet("train", flag.ContinueOnError), []string{"--ckpt-every-secs=9"}, true)
	if !errors.As(err, &helpful) || !strings.Contains(helpful.Hint(), "switch it off with 0") {
		t.Errorf("of Main and a flag: %v", err)
	}
	c = begin(t, Config{CheckpointDir: "folder", CheckpointEverySteps: 3}, "--ckpt-every-secs=9", "--ckpt-every-steps=0")
	if c.CheckpointEverySteps != 0 || c.CheckpointEverySecs != 9 {
		t.Errorf("switched off: %+v", c.Config)
	}
	if _, err := c.Complete(Config{CheckpointEverySteps: 4}); err != nil {
		t.Errorf("switched off for Parallelize too: %v", err)
	}
	if _, err := begin(t, Config{CheckpointDir: "folder"}, "--ckpt-every-secs=9").Complete(Config{CheckpointEverySteps: 4}); err == nil {
		t.Error("of Parallelize and a flag: no error")
	}
	c = begin(t, Config{VirtualWorkers: 6}, "--replicas=2")
	if _, err := c.CountVirtual(1, 1); !errors.As(err, &helpful) || !strings.Contains(helpful.Hint(), "--virtual-workers 0") {
		t.Errorf("virtual workers and replicas: %v", err)
	}
	c = begin(t, Config{VirtualWorkers: 6}, "--replicas=2", "--virtual-workers=0")
	if virtual, err := c.CountVirtual(1, 1); virtual != 2 || err != nil {
		t.Errorf("virtual workers switched off: %d, %v", virtual, err)
	}
}

// The nonzero fields of the later configuration override those of the earlier
// one.
func TestLaterConfigurationsWin(t *testing.T) {
	c := Default().With(Config{Arch: "ps", Seed: 4, Digest: true}, Config{Seed: 5, GlobalBatch: 8})
	c, err := c.Complete(Config{GlobalBatch: 12, ClipNorm: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := Default().Config
	want.Arch, want.Seed, want.Digest, want.GlobalBatch, want.ClipNorm = "ps", 5, true, 12, 1
	if !reflect.DeepEqual(c.Config, want) {
		t.Errorf("got %+v, want %+v", c.Config, want)
	}
}
