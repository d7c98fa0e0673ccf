package config

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
)

// names are the names of the trainer's flags.
func names() (all []string) {
	new(Config).flags().VisitAll(func(x *flag.Flag) { all = append(all, x.Name) })
	return all
}

// parsed reads a command line as the flags of a program with one flag of its
// own.
func parsed(arguments ...string) (c Config, own *int, printed string, err error) {
	c = Default()
	var out bytes.Buffer
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	f.SetOutput(&out)
	own = f.Int("hidden", 100, "`units` of the hidden layer")
	err = c.parse(f, arguments, true)
	return c, own, out.String(), err
}

func TestFlagsOutOfRangeAreRefused(t *testing.T) {
	for argument, want := range map[string]string{
		"--arch=tree":            `--arch "tree": want ps, allreduce, hybrid or auto`,
		"--balance=weight":       `--balance "weight": want load or bytes`,
		"--partitions=-1":        "--partitions is -1: want at least 0",
		"--virtual-workers=-1":   "--virtual-workers is -1: want at least 0",
		"--replicas=0":           "--replicas is 0: want at least 1",
		"--accumulate=-2":        "--accumulate is -2: want at least 1",
		"--lanes=-1":             "--parallel-replicas is -1",
		"--stop-at-step=-5":      "--stop-at-step is -5",
		"--check-parameters=-1":  "--check-parameters is -1",
		"--bucket-bytes=0":       "--bucket-bytes is 0",
		"--partition-bytes=0":    "--partition-bytes is 0",
		"--profile-steps=5":      "--profile-steps",
		"--profile-steps=5:5":    "--profile-steps",
		"--profile-steps=-1:4":   "--profile-steps",
		"--seed=-1":              "invalid value",
		"--replicas=many":        "invalid value",
		"--no-such-flag":         "flag provided but not defined",
		"--sync=fast":            `--sync: synchronisation "fast": want sync, async, ssp:K, group:G or backup:B`,
		"--sync=ssp":             `"ssp"`,
		"--sync=ssp:-1":          `"ssp:-1"`,
		"--sync=async:2":         `"async:2"`,
		"--check-numerics=maybe": "invalid boolean value",
	} {
		if _, _, _, err := parsed(argument); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", argument, err, want)
		}
	}
}

// A flag wins over the program's setting, and one that is not given leaves it.
func TestFlagsWinOverSettings(t *testing.T) {
	c := Default()
	c.Arch, c.Sync, c.Seed, c.Replicas = "ps", "async", 4, 2
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	hidden := f.Int("hidden", 100, "")
	err := c.parse(f, []string{"--sync=ssp:3", "--hidden=7", "--seed", "9", "--profile-steps=2:4", "--digest"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if c.Arch != "ps" || c.Sync != "ssp:3" || c.Seed != 9 || c.Replicas != 2 || *hidden != 7 || !c.Digest || !c.Profile.Contains(3) || c.Profile.Contains(4) {
		t.Errorf("got %+v, hidden %d", c, *hidden)
	}
}

// A name that the program has taken is an error and not a panic.
func TestFlagOfBothIsRefused(t *testing.T) {
	for _, name := range names() {
		c := Default()
		f := flag.NewFlagSet("train", flag.ContinueOnError)
		f.String(name, "", "the program's own")
		if err := c.parse(f, nil, true); err == nil || !strings.Contains(err.Error(), "--"+name+" is the trainer's") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program that parses by itself has no trainer flags, and trains.
func TestProgramThatParsesItself(t *testing.T) {
	c := Default()
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	if err := f.Parse([]string{"left", "over"}); err != nil {
		t.Fatal(err)
	}
	if err := c.parse(f, []string{"--arch=nonsense"}, true); err != nil || f.Lookup("arch") != nil {
		t.Errorf("got %v", err)
	}
}

// --help lists the program's flags first, and the trainer's apart.
func TestHelpListsFlagsApart(t *testing.T) {
	_, _, text, err := parsed("--help")
	if !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	program, trainers, found := strings.Cut(text, "\nflags of plx's trainer:\n")
	if !found || !strings.HasPrefix(program, "usage: train [flags]\n") {
		t.Fatalf("got %s", text)
	}
	if !strings.Contains(program, "  -hidden units\n") || !strings.Contains(program, "(default 100)") || strings.Count(program, "\n  -") != 1 {
		t.Errorf("the program's flags: %s", program)
	}
	for _, name := range names() {
		listed := name != "fresh-process" && name != "lanes"
		if strings.Contains(program, "-"+name) || strings.Contains(trainers, "  -"+name) != listed {
			t.Errorf("--%s is not in its place: %s", name, text)
		}
	}
	if strings.Contains(trainers, "hidden") {
		t.Errorf("the trainer's flags: %s", trainers)
	}
}
