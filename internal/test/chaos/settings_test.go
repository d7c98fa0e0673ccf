package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestChosen(t *testing.T) {
	for args, want := range map[string][]string{
		"--run ^ps/chief/(kill|stop)$":        {"ps/chief/kill", "ps/chief/stop"},
		"--part 2/100":                        {"ps/chief/stop", "allreduce/worker/reset", "hybrid/launcher/slow"},
		"--part 5/5 --run ^ps/chief/.*t$":     {"ps/chief/cut", "ps/chief/corrupt"},
		"--run hybrid/server/power --seed 12": {"hybrid/server/power"},
	} {
		s, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		var got []string
		for _, c := range s.chosen() {
			got = append(got, c.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", args, got)
		}
	}
}

func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"--run ps/worker/exist": "no cell has such a name",
		"--run (":               "missing closing )",
		"ps/worker/kill":        `"ps/worker/kill": want flags only`,
		"--seed x":              "invalid value",
		"--part 3/2":            "want a part and the number of parts",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestCommand(t *testing.T) {
	for args, want := range map[string]string{
		"":                           "make fault-grid",
		"--out /x --plx=/y --logs z": "make fault-grid",
		"--run ps/.* --logs=z":       `make fault-grid ARGS="--run ps/.*"`,
		"--plx /t --part 1/2 --seed": `make fault-grid ARGS="--part 1/2 --seed"`,
	} {
		if got := command(strings.Fields(args)); got != want {
			t.Errorf("%s: %s", args, got)
		}
	}
}

func TestList(t *testing.T) {
	var out strings.Builder
	if err := tryAll(t.Context(), []string{"--list", "--run", "ps/worker/power"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "ps/worker/power") || !strings.Contains(got, "recovers") || !strings.HasSuffix(got, "1 cells\n") {
		t.Error(got)
	}
}
