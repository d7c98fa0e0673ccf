package trainer

import "time"

// Functions that set one field of a configuration each, so that tests can
// write options as calls.
type (
	Option  = Config
	Setting = Config
)

func GlobalBatch(rows int) Config         { return Config{GlobalBatch: rows} }
func ClipNorm(most float64) Config        { return Config{ClipNorm: most} }
func MeasureNorm() Config                 { return Config{MeasureNorm: true} }
func AtEndOfData(e Ending) Config         { return Config{AtEndOfData: e} }
func Hooks(h ...Hook) Config              { return Config{Hooks: h} }
func StartTimeout(d time.Duration) Config { return Config{StartTimeout: d} }
func PeerTimeout(d time.Duration) Config  { return Config{PeerTimeout: d} }
func Arch(name string) Config             { return Config{Arch: name} }
func Sync(mode string) Config             { return Config{Sync: mode} }
func VirtualWorkers(v int) Config         { return Config{VirtualWorkers: v} }
func Replicas(r int) Config               { return Config{Replicas: r} }
func Accumulate(n int) Config             { return Config{Accumulate: n} }
func Seed(s uint64) Config                { return Config{Seed: s} }
