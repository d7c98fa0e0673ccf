package main

import (
	"slices"
	"strings"
	"testing"
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
