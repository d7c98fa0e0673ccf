package gpuprobe

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/lipgloss"
)

func tableRows(t *testing.T) []Row {
	return []Row{
		{Host: "gpu02", Report: answerOf(t, "busy-570")},
		{Host: "down", Err: errors.New("dial 10.0.0.9:22: i/o timeout\nafter three tries")},
		{Host: "alice@gpu01:2222", Report: answerOf(t, "mig-535")},
		{Host: "cpu01", Report: answerOf(t, "no-gpu")},
		{Host: "sick", Report: answerOf(t, "mismatch-550")},
		{Host: "reset", Report: answerOf(t, "needs-reset-580")},
		{Host: "short", Report: answerOf(t, "unified-580"), Unmet: errors.New("h.txt:7: host short: no GPU 7:\nthe host has 0")},
	}
}

func TestPlainTable(t *testing.T) { compareTable(t, "testdata/table.txt", tableRows(t)) }

func compareTable(t *testing.T, golden string, rows []Row) {
	t.Helper()
	var b strings.Builder
	if err := Table(&b, rows, false); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden) // before it is written: a run that changes it fails
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestDrawnTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, tableRows(t), true); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, word := range []string{"╭", "╯", "\x1b[", "GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95", "i/o timeout", "MIG 3g.40gb", "NVML"} {
		if !strings.Contains(got, word) {
			t.Errorf("no %q in\n%s", word, got)
		}
	}
	widths := map[int]bool{}
	for _, line := range strings.Split(strings.TrimSpace(got), "\n") {
		if line != "" {
			widths[lipgloss.Width(line)] = true
		}
	}
	if len(widths) != 2 {
		t.Errorf("lines of two tables have widths %v:\n%s", widths, got)
	}
}

func TestTableWithoutRows(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, nil, false); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q %v", b.String(), err)
	}
}
