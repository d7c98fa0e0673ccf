package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/optimizer"
)

// example returns a manifest with every feature: a dense variable in one part,
// another in two, a sparse one, running statistics, and recurrent state.
func example() *Manifest {
	sum := strings.Repeat("0123456789abcdef", 4)
	return &Manifest{
		Format: format, ID: "000000000040-g1-5f3a9c1e", Job: "mlp", Generation: 1, Step: 40, Cut: []uint64{40, 43},
		Time: time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC), VirtualWorkers: 4, Batch: 8, Seed: 1<<64 - 1, Model: "ab",
		Optimizer: optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9},
		Variables: []Variable{
			{Name: "w1", Dtype: "float32", Shape: []int{3, 4}},
			{Name: "w2", Dtype: "float64", Shape: []int{10}},
			{Name: "words", Dtype: "float32", Shape: []int{100, 2}, Sparse: true},
			{Name: "mean", Dtype: "float32", Shape: []int{}, Update: optimizer.Average, Momentum: 0.5},
		},
		Files: []File{
			{Name: "worker-0.safetensors", Task: "worker:0", Size: 4096, Sum: sum},
			{Name: "ps-1.safetensors", Task: "ps:1", Size: 2048, Sum: sum},
			{Name: "worker-0.state.safetensors", Task: "worker:0", Size: 192, Sum: sum},
		},
		Parts: []Part{
			{Variable: "w1", File: "worker-0.safetensors", Tensor: "w1", Count: 12, Rows: -1, Updates: 40, Slots: 1},
			{Variable: "w2", File: "ps-1.safetensors", Tensor: "w2[6:10]", Offset: 6, Count: 4, Rows: -1, Updates: 40, Slots: 1},
			{Variable: "w2", File: "worker-0.safetensors", Tensor: "w2[0:6]", Count: 6, Rows: -1, Updates: 40, Slots: 1},
			{Variable: "words", File: "ps-1.safetensors", Tensor: "words[0:60]", Count: 60, Rows: 7, Updates: 39, Slots: 1},
			{Variable: "words", File: "worker-0.safetensors", Tensor: "words[60:100]", Offset: 60, Count: 40, Slots: 1},
			{Variable: "mean", File: "ps-1.safetensors", Tensor: "mean", Count: 1, Rows: -1, Updates: 40},
		},
		Carried: []Carried{
			{Name: "h", File: "worker-0.state.safetensors", Tensor: "h[4:8]", Dtype: "float32", Shape: []int{4, 3}, Lo: 4, Hi: 8},
			{Name: "h", File: "worker-0.state.safetensors", Tensor: "h[0:4]", Dtype: "float32", Shape: []int{4, 3}, Lo: 0, Hi: 4},
		},
	}
}

func encoded(t testing.TB, m *Manifest) []byte {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestManifestRoundTrip(t *testing.T) {
	m, err := DecodeManifest(encoded(t, example()))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, example()) {
		t.Errorf("got %+v, want %+v", m, example())
	}
}

func TestContradictoryManifestsAreRefused(t *testing.T) {
	for want, change := range map[string]func(m *Manifest){
		`checkpoint "40": a checkpoint's name is like`:                    func(m *Manifest) { m.ID = "40" },
		"step 41 and generation 1 do not match its name":                  func(m *Manifest) { m.Step = 41 },
		"step 40 and generation 2 do not match":                           func(m *Manifest) { m.Generation = 2 },
		"cut of 2 groups: want at most 65536, beginning with step 40":     func(m *Manifest) { m.Cut = []uint64{39, 40} },
		"cut of 65537 groups: want at most 65536, beginning with step 40": func(m *Manifest) { m.Cut = slices.Repeat([]uint64{40}, 65537) },
		"0 virtual workers":                                      func(m *Manifest) { m.VirtualWorkers = 0 },
		"65537 virtual workers":                                  func(m *Manifest) { m.VirtualWorkers = 65537 },
		"batch -1":                                               func(m *Manifest) { m.Batch = -1 },
		"job and model: want UTF-8":                              func(m *Manifest) { m.Job = "\xff" },
		"time in the year 10000":                                 func(m *Manifest) { m.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		`optimiser "lion"`:                                       func(m *Manifest) { m.Optimizer.Rule = "lion" },
		`variable "": names must be distinct`:                    func(m *Manifest) { m.Variables[0].Name = "" },
		`variable "w1": names must be distinct`:                  func(m *Manifest) { m.Variables[1].Name = "w1" },
		`variable "w1": type "int8"`:                             func(m *Manifest) { m.Variables[0].Dtype = "int8" },
		`variable "w1": shape [3 0]`:                             func(m *Manifest) { m.Variables[0].Shape[1] = 0 },
		`variable "w1": shape [3 -4]`:                            func(m *Manifest) { m.Variables[0].Shape[1] = -4 },
		`variable "w1": shape [4294967296 4294967296]`:           func(m *Manifest) { m.Variables[0].Shape = []int{1 << 32, 1 << 32} },
		`variable "words": shape []`:                             func(m *Manifest) { m.Variables[2].Shape = nil },
		`variable "mean": update "sgd"`:                          func(m *Manifest) { m.Variables[3].Update = "sgd" },
		`variable "w1": update "" with momentum 0.5`:             func(m *Manifest) { m.Variables[0].Momentum = 0.5 },
		`variable "mean": optimiser average: momentum is 1`:      func(m *Manifest) { m.Variables[3].Momentum = 1 },
		`file "a/b": want a plain name`:                          func(m *Manifest) { m.Files[0].Name = "a/b" },
		`file ".a": want a plain name`:                           func(m *Manifest) { m.Files[0].Name = ".a" },
		`file "..": want a plain name`:                           func(m *Manifest) { m.Files[0].Name = ".." },
		`file "manifest.json": the manifest has that name`:       func(m *Manifest) { m.Files[0].Name = manifestName },
		"file ps-1.safetensors: listed twice":                    func(m *Manifest) { m.Files[0].Name = "ps-1.safetensors" },
		`file ps-1.safetensors: task "ps": want`:                 func(m *Manifest) { m.Files[1].Task = "ps" },
		"file ps-1.safetensors: -1 bytes":                        func(m *Manifest) { m.Files[1].Size = -1 },
		"file ps-1.safetensors: 1125899906842625 bytes":          func(m *Manifest) { m.Files[1].Size = maxFile + 1 },
		`file ps-1.safetensors: sum "abc"`:                       func(m *Manifest) { m.Files[1].Sum = "abc" },
		`sum "ABCD`:                                              func(m *Manifest) { m.Files[1].Sum = strings.Repeat("ABCD", 16) },
		`variable "w9": the manifest does not list it`:           func(m *Manifest) { m.Parts[0].Variable = "w9" },
		`variable "w1": file "x": the manifest does not list it`: func(m *Manifest) { m.Parts[0].File = "x" },
		`tensor "": names must be`:                               func(m *Manifest) { m.Parts[0].Tensor = "" },
		`file worker-0.safetensors: tensor "w1": names`:          func(m *Manifest) { m.Parts[2].Tensor = "w1" },
		`variable "w1": part of 13 from 0: the variable has 12`:  func(m *Manifest) { m.Parts[0].Count = 13 },
		`variable "w1": part of 0 from 0`:                        func(m *Manifest) { m.Parts[0].Count = 0 },
		`variable "w1": part of 12 from -1`:                      func(m *Manifest) { m.Parts[0].Offset = -1 },
		`part of 9223372036854775807 from 9`:                     func(m *Manifest) { m.Parts[0].Offset, m.Parts[0].Count = 9, 1<<63-1 },
		`variable "w1": no part covers [0, 1)`:                   func(m *Manifest) { m.Parts[0].Offset, m.Parts[0].Count = 1, 11 },
		`variable "w1": no part covers [11, 12)`:                 func(m *Manifest) { m.Parts[0].Count = 11 },
		`variable "w2": no part covers [5, 6)`:                   func(m *Manifest) { m.Parts[2].Count = 5 },
		`variable "w2": the parts that end at 7 and begin`:       func(m *Manifest) { m.Parts[2].Count = 7 },
		`variable "mean": no part covers [0, 1)`:                 func(m *Manifest) { m.Parts = m.Parts[:5] },
		`variable "words": no part covers [60, 100)`:             func(m *Manifest) { m.Parts = append(m.Parts[:4], m.Parts[5]) },
		`variable "w1": part of 12 from 0: 0 rows are stored`:    func(m *Manifest) { m.Parts[0].Rows = 0 },
		`variable "words": part of 60 rows from 0: 61 of`:        func(m *Manifest) { m.Parts[3].Rows = 61 },
		`variable "words": part of 60 rows from 0: -1 of`:        func(m *Manifest) { m.Parts[3].Rows = -1 },
		`variable "w1": part of 12 from 0: 2 slots, its rule`:    func(m *Manifest) { m.Parts[0].Slots = 2 },
		`variable "mean": part of 1 from 0: 1 slots`:             func(m *Manifest) { m.Parts[5].Slots = 1 },
		`keeps 2`: func(m *Manifest) { m.Optimizer = optimizer.Settings{Rule: optimizer.Adam} },
		`tensor "w2[0:6]" takes 96 bytes, 95 are left`:         func(m *Manifest) { m.Files[0].Size = 96 + 95 },
		`tensor "words[0:60]" takes 168 bytes, 167 are left`:   func(m *Manifest) { m.Files[1].Size = 64 + 167 },
		`carried "": want a name`:                              func(m *Manifest) { m.Carried[0].Name = "" },
		`carried "h": file "x": the manifest does not list it`: func(m *Manifest) { m.Carried[0].File = "x" },
		`carried "h": type "F32"`:                              func(m *Manifest) { m.Carried[0].Dtype = "F32" },
		`carried "h": rows [4, 9): the batch has 8`:            func(m *Manifest) { m.Carried[0].Hi = 9 },
		`carried "h": rows [4, 4)`:                             func(m *Manifest) { m.Carried[0].Hi = 4 },
		`carried "h": rows [-1, 4)`:                            func(m *Manifest) { m.Carried[1].Lo = -1 },
		`carried "h": shape [5 3]: want`:                       func(m *Manifest) { m.Carried[0].Shape[0] = 5 },
		`carried "h": shape []: want`:                          func(m *Manifest) { m.Carried[0].Shape = nil },
		`carried "h": rows from 0 are float32 [4 2], those`:    func(m *Manifest) { m.Carried[1].Shape[1] = 2 },
		`carried "h": rows from 0 are uint8 [4 3], those`:      func(m *Manifest) { m.Carried[1].Dtype = "uint8" },
		`carried "h": no part covers [4, 8)`:                   func(m *Manifest) { m.Carried = m.Carried[1:] },
		`carried "h": no part covers [8, 9)`:                   func(m *Manifest) { m.Batch = 9 },
		`carried "h": the parts that end at 4 and begin at 3`:  func(m *Manifest) { m.Carried[0].Lo, m.Carried[0].Hi = 3, 7 },
		`tensor "h[0:4]" takes 48 bytes, 47 are left`:          func(m *Manifest) { m.Files[2].Size = 48 + 47 },
	} {
		m := example()
		change(m)
		if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "manifest: ") {
			t.Errorf("encode: got %v, want %q", err, want)
		}
		if strings.HasPrefix(want, "job and model") || strings.HasPrefix(want, "time") {
			continue // the JSON in a manifest cannot represent this value
		}
		if _, err := DecodeManifest(sealed(t, m)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decode: got %v, want %q", err, want)
		}
	}
}

// sealed encodes m, which may be invalid, as a manifest file with a correct
// checksum.
func sealed(t testing.TB, m any) []byte {
	t.Helper()
	body, ok := m.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Appendf(nil, "{\"sum\":\"%x\",\"checkpoint\":%s}\n", sha256.Sum256(body), body)
}

func TestDecodeRefusesUnknownFieldsAndFormats(t *testing.T) {
	body := encoded(t, example())
	body = body[bodyAt : len(body)-len(afterBody)]
	for want, change := range map[string]string{
		"its format is 2, this plx knows 1: use the plx that wrote it": strings.Replace(string(body), `"format":1`, `"format":2,"later":true`, 1),
		"format 0: want 1":          strings.Replace(string(body), `"format":1`, `"format":0`, 1),
		`unknown field "later"`:     strings.Replace(string(body), `"step":40`, `"step":40,"later":true`, 1),
		"after top-level value":     string(body) + "{}",
		"cannot unmarshal number -": strings.Replace(string(body), `"step":40`, `"step":-40`, 1),
		"unexpected end":            string(body[:len(body)-1]),
		"invalid character 'x'":     "x",
	} {
		_, err := DecodeManifest(sealed(t, []byte(change)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := DecodeManifest(make([]byte, maxManifest+1)); err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Errorf("too long: %v", err)
	}
}

func TestOversizedManifestIsRefused(t *testing.T) {
	m := example()
	m.Job = strings.Repeat("x", maxManifest)
	if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), "want at most 67108864") {
		t.Error(err)
	}
}

func TestTruncatedManifestIsRefused(t *testing.T) {
	whole := encoded(t, example())
	for n := range whole {
		if _, err := DecodeManifest(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a manifest", n, len(whole))
		}
	}
}

func TestFlippedBitInManifestIsRefused(t *testing.T) {
	whole := encoded(t, example())
	for i := range whole {
		for bit := range 8 {
			whole[i] ^= 1 << bit
			if _, err := DecodeManifest(whole); err == nil {
				t.Errorf("byte %d, bit %d: not noticed", i, bit)
			}
			whole[i] ^= 1 << bit
		}
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(encoded(f, example()), false)
	f.Add([]byte(`{"format":1,"id":"000000000001-g0-00000000","step":1,"leaves":1,"optimizer":{"rule":"sgd"},"time":"2026-01-01T00:00:00Z"}`), true)
	f.Add([]byte(`{"format":2}`), true)
	whole := encoded(f, example())
	f.Add(whole[bodyAt:len(whole)-len(afterBody)], true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal { // add a correct checksum, or every mutation would already fail at the checksum
			b = sealed(t, b)
		}
		m, err := DecodeManifest(b)
		if err != nil {
			return
		}
		again, err := DecodeManifest(encoded(t, m))
		if err != nil || !bytes.Equal(encoded(t, again), encoded(t, m)) {
			t.Fatalf("does not come back: %v", err)
		}
		if err := m.Fits(m.Variables, m.Optimizer); err != nil {
			t.Fatal(err)
		}
		for i, n := range covered(m) {
			if v := &m.Variables[i]; len(n) == 0 || slices.Max(n) != 1 || slices.Min(n) != 1 {
				t.Fatalf("variable %q is not covered once", v.Name)
			}
		}
	})
}

// covered returns, by variable and unit (row or element), the number of parts
// that contain the unit. It checks four units of each variable, to save
// memory.
func covered(m *Manifest) [][]int {
	counts := make([][]int, len(m.Variables))
	for i := range m.Variables {
		n, _ := m.Variables[i].units()
		for _, at := range []int{0, n / 3, n / 2, n - 1} {
			count := 0
			for _, p := range m.Parts {
				if p.Variable == m.Variables[i].Name && p.Offset <= at && at < p.Offset+p.Count {
					count++
				}
			}
			counts[i] = append(counts[i], count)
		}
	}
	return counts
}
