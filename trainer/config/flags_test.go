package config

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"
)

// names returns the names of the trainer's flags.
func names() (all []string) {
	new(Effective).flags().VisitAll(func(x *flag.Flag) { all = append(all, x.Name) })
	return all
}

// parsed parses a command line for a program that has one flag of its own.
func parsed(arguments ...string) (c Effective, own *int, printed string, err error) {
	c = Default()
	var out bytes.Buffer
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	f.SetOutput(&out)
	own = f.Int("hidden", 100, "`units` of the hidden layer")
	err = c.parse(f, arguments, true)
	return c, own, out.String(), err
}

func TestPartitionFlagsThatContradictAreRefused(t *testing.T) {
	for _, arguments := range [][]string{
		{"--min-partitions=4", "--max-partitions=3"}, {"--partitions=2", "--min-partitions=3"}, {"--partitions=9", "--max-partitions=8"},
	} {
		if _, _, _, err := parsed(arguments...); err == nil || !strings.Contains(err.Error(), "contradict each other") {
			t.Errorf("%v: got %v", arguments, err)
		}
	}
	if _, _, _, err := parsed("--partitions=3", "--min-partitions=3", "--max-partitions=3"); err != nil {
		t.Error(err)
	}
}

func TestFlagsOutOfRangeAreRefused(t *testing.T) {
	for argument, want := range map[string]string{
		"--arch=tree":            `--arch "tree": want ps, allreduce, hybrid or auto`,
		"--balance=weight":       `--balance "weight": want load or bytes`,
		"--partitions=-1":        "--partitions is -1: want at least 0",
		"--min-partitions=-1":    "--min-partitions is -1: want at least 0",
		"--combine-rows=mean":    `--combine-rows "mean": want loss, add or average`,
		"--virtual-workers=-1":   "--virtual-workers is -1: want at least 0",
		"--replicas=0":           "--replicas is 0: want at least 1",
		"--accumulate=-2":        "--accumulate is -2: want at least 1",
		"--parallel-replicas=-1": "--parallel-replicas is -1",
		"--prefetch=maybe":       "invalid boolean value",
		"--stop-at-step=-5":      "--stop-at-step is -5",
		"--check-parameters=-1":  "--check-parameters is -1",
		"--bucket-bytes=0":       "--bucket-bytes is 0",
		"--partition-bytes=0":    "--partition-bytes is 0",
		"--profile-steps=5,":     "--profile-steps",
		"--profile-workers=0":    "--profile-workers needs --profile-steps",
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

// If the program defines a flag with the name of a trainer's flag, the result
// is an error, not a panic.
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

// If the program has called flag.Parse itself, the trainer has no flags, and
// the configuration is valid.
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

// --help lists the program's flags first, then the trainer's flags separately.
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
		if strings.Contains(program, "-"+name) || !strings.Contains(trainers, "  -"+name) {
			t.Errorf("--%s is not in its place: %s", name, text)
		}
	}
	if strings.Contains(trainers, "hidden") {
		t.Errorf("the trainer's flags: %s", trainers)
	}
}

// After a mistake in the command line the list of all flags is not printed.
func TestMistypedFlagPrintsNoPages(t *testing.T) {
	_, _, text, err := parsed("--hiden=3")
	if err == nil || text != "flag provided but not defined: -hiden\ntrain -h lists all flags\n" {
		t.Errorf("%v, %q", err, text)
	}
}

// All workers write a timeline, or those that --profile-workers names. At
// least one of these must exist.
func TestProfileOfWorkers(t *testing.T) {
	c := Default()
	if steps, err := c.Profile(0); steps != nil || err != nil {
		t.Errorf("%v, %v", steps, err)
	}
	c.ProfileSteps = "3,7:9"
	for worker := range 4 {
		if steps, err := c.Profile(worker); err != nil || !steps.Contains(3) || steps.Contains(4) || !steps.Contains(8) {
			t.Errorf("worker %d: %v, %v", worker, steps, err)
		}
	}
	c.ProfileWorkers = "1,3:5"
	for worker, want := range []bool{false, true, false, true} {
		if steps, err := c.Profile(worker); err != nil || steps != nil != want {
			t.Errorf("worker %d: %v, %v", worker, steps, err)
		}
	}
	if err := c.Suits(2, 1); err != nil {
		t.Error(err)
	}
	if err := c.Suits(1, 1); err == nil || !strings.Contains(err.Error(), "--profile-workers 1,3:5: the job has 1 worker") {
		t.Errorf("no such worker: %v", err)
	}
	c.ProfileWorkers = "x"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "--profile-workers: steps \"x\"") {
		t.Errorf("got %v", err)
	}
}

// With --ckpt-dir alone, checkpoints are written every ten minutes.
func TestCheckpointPeriod(t *testing.T) {
	for arguments, want := range map[string]time.Duration{
		"--ckpt-dir=x": 10 * time.Minute, "--ckpt-dir=x --ckpt-every-steps=5": 0, "--ckpt-dir=x --ckpt-every-secs=7": 7 * time.Second,
	} {
		c := Default()
		if err := c.parse(flag.NewFlagSet("train", flag.ContinueOnError), strings.Fields(arguments), true); err != nil {
			t.Fatal(err)
		}
		if got := c.CheckpointPeriod(); got != want {
			t.Errorf("%s: %v, want %v", arguments, got, want)
		}
	}
}
