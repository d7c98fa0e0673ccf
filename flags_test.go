package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

func TestFlagsFirst(t *testing.T) {
	app := (&command{}).app()
	for args, want := range map[string]string{
		"plx":                                  "plx",
		"plx logs":                             "plx logs",
		"plx logs JOB -f":                      "plx logs -f JOB",
		"plx logs -f JOB --task worker:3":      "plx logs -f --task worker:3 JOB",
		"plx logs JOB --tail=3 --json":         "plx logs --tail=3 --json JOB",
		"plx logs JOB --tail":                  "plx logs --tail JOB",
		"plx logs - --grep -x":                 "plx logs --grep -x -",
		"plx logs --json -- -JOB -f":           "plx logs --json -- -JOB -f",
		"plx stop JOB --grace 0s --host h1":    "plx stop --grace 0s --host h1 JOB",
		"plx stop JOB --no-such x":             "plx stop --no-such JOB x",
		"plx launch --name x ./train --name y": "plx launch --name x ./train --name y",
		"plx frob JOB -f":                      "plx frob JOB -f",
	} {
		if got := flagsFirst(app, strings.Fields(args)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s:\n got %s\nwant %s", args, strings.Join(got, " "), want)
		}
	}
}

// Flags of plx after the program give a note.
func TestFlagsAfterProgramAreNoted(t *testing.T) {
	launch := (&command{}).launchCommand()
	for _, name := range ownFlags {
		if !slices.ContainsFunc(launch.Flags, func(f cli.Flag) bool { return "--"+f.Names()[0] == name }) {
			t.Errorf("%s is no flag of plx launch", name)
		}
	}
	var said strings.Builder
	warnOfFlags(launcher.Config{Terminal: console.Terminal{Stderr: &said}, Program: "./train", Args: []string{"--name", "x", "--max-restarts=3"}})
	if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "--max-restarts comes after ./train") {
		t.Errorf("%q", text)
	}
}

func TestLogLimit(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "none": 0, "0GiB": 0, "1048576": 1 << 20, "1MiB": 1 << 20, "1m": 1 << 20, "1.5 gib": 3 << 29, "2G": 2 << 30,
		"500MB": 500e6, "1TiB": 1 << 40, "1024K": 1 << 20,
	} {
		if got, err := logLimit(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "want a size", "-1": "want a size", "1X": "want a size", "GiB": "want a size", "1e9": "want a size", "0x10": "want a size",
		"1023K": "at least 1MiB", "1": "at least 1MiB", "999999999999999T": "larger than any disk",
	} {
		if _, err := logLimit(text); err == nil || !strings.Contains(err.Error(), want) || exit.Code(err) != 2 || exit.Hint(err) == "" {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// asksEvents finds --json among the flags of plx launch, even if other flags
// are wrong.
func TestAsksEvents(t *testing.T) {
	app := (&command{}).app()
	for line, want := range map[string]bool{
		"plx launch --json ./train":                 true,
		"plx launch --no-such --json ./train":       true,
		"plx launch --hosts x -n many --json=true":  true,
		"plx launch ./train --json":                 false,
		"plx launch --hosts --json ./train":         false, // here --json is the name of a file
		"plx launch -- --json":                      false,
		"plx launch --json=false ./train":           false,
		"plx logs --json --no-such":                 false,
		"plx":                                       false,
		"plx launch":                                false,
		"plx launch --notify --json --tls ./train":  false,
		"plx launch --notify=x -v --json ./train -": true,
	} {
		if got := asksEvents(app, strings.Fields(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}
