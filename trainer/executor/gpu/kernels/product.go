package kernels

import "fmt"

const (
	tile      = 64  // number of rows, and of columns, of the part of a product that one block computes
	largeTile = 128 // like tile, for a float32 product that has at least largeGrid parts of this size
	largeGrid = 128
	// If a product has few tiles and each element is a long sum, several
	// blocks share each sum.
	//
	// TODO: no real GPU has run this; these sizes are guesses and were never
	// tuned.
	fewTiles   = 64
	longSum    = 1024 // smallest number of terms of a sum that is divided
	partTerms  = 256  // smallest number of terms of one part of a sum
	mostParts  = 32
	mostBlockY = 1<<16 - 1 // CUDA's largest grid size in the second and third dimension
)

// Matrices describes Count products of a matrix A (M x K) and a matrix B (K x
// N). The matrices of each operand lie one after the other in memory. If
// TransA is true, A is stored as K x M; if TransB is true, B is stored as N x
// K.
type Matrices struct {
	Count, M, N, K int
	TransA, TransB bool
	Bias           bool // if true, the vector bias, of N elements, is added to each row of the result
}

// Product multiplies matrices. The operands are out, a, b and, if p.Bias is
// true, bias.
//
// Each element of out is a sum in ascending order of k that begins at 0. Each
// multiplication is fused with its addition. If the result is small and the
// sums are long, each sum is divided into parts. The parts are then added in
// ascending order. The number of parts depends only on the shape. The bias is
// added last.
func Product(t Type, p Matrices) (Operation, error) {
	if err := check("matrix product", elements(p.Count, p.M, p.K), elements(p.Count, p.K, p.N), elements(p.Count, p.M, p.N)); err != nil {
		return Operation{}, err
	}
	parts, size := p.parts()
	g := tiles(p.M, p.N, p.Count*parts)
	if g[1] > mostBlockY || g[2] > mostBlockY {
		return Operation{}, fmt.Errorf("matrix product on a GPU: %d results of %d x %d: too many", p.Count, p.M, p.N)
	}
	o := Operation{Operands: []string{"out", "a", "b"}}
	bias := 1 // without a bias, the kernel's parameter points to operand a, and the kernel does not read it as a bias
	if p.Bias {
		bias, o.Operands = 3, append(o.Operands, "bias")
	}
	to := 0
	if parts > 1 {
		to, o.Scratch = len(o.Operands), parts*p.Count*p.M*p.N*t.Size()
	}
	kernel := "product_" + p.order() + "_" + t.suffix()
	if large := gridOf(largeTile, p.M, p.N, p.Count); t == Float32 && parts == 1 && int(large[0])*int(large[1])*p.Count >= largeGrid {
		kernel, g = "large_"+kernel, large
	}
	o = o.then(launch("product", kernel, g, blockThreads, []int{to, 1, 2, bias},
		p.M, p.N, p.K, parts, size, flag(p.Bias && parts == 1)))
	if p.K > 0 && len(o.Launches) > 0 {
		o.Product = &p
	}
	if parts > 1 {
		n := p.Count * p.M * p.N
		o = o.then(launch("product", "parts_"+t.suffix(), grid(n), blockThreads, []int{0, to, bias}, n, p.M*p.N, p.N, parts, flag(p.Bias)))
	}
	return o, nil
}

// parts returns into how many parts each sum of the product is divided, and
// the number of terms of a part.
func (p Matrices) parts() (parts, size int) {
	n := divide(p.M, tile) * divide(p.N, tile) * p.Count
	if p.K < longSum || n >= fewTiles || n == 0 {
		return 1, max(p.K, 1)
	}
	parts = min(p.K/partTerms, divide(2*fewTiles, n), mostParts)
	size = divide(divide(p.K, parts), 16) * 16
	return divide(p.K, size), size
}

// order returns a part of the kernel's name: two letters, for A and for B. "t"
// means that the operand is read transposed, and "n" that it is not.
func (p Matrices) order() string {
	letter := map[bool]string{false: "n", true: "t"}
	return letter[p.TransA] + letter[p.TransB]
}

// tiles returns the grid for count results of m x n elements each. One block
// computes one tile.
func tiles(m, n, count int) [3]uint32 { return gridOf(tile, m, n, count) }

func gridOf(edge, m, n, count int) [3]uint32 {
	return [3]uint32{uint32(divide(n, edge)), uint32(divide(m, edge)), uint32(count)}
}

// MatVec multiplies a matrix by a vector. rows and columns are the size of the
// matrix in memory; it is read transposed if trans is true. The operands are
// out, a and x. Sums are kept in double precision.
func MatVec(t Type, rows, columns int, trans bool) (Operation, error) {
	m, k, down, along := rows, columns, columns, 1
	if trans {
		m, k, down, along = columns, rows, 1, columns
	}
	team := teamFor(k, trans)
	o := Operation{Operands: []string{"out", "a", "x"}}
	return o.then(launch("product", "matvec_"+t.suffix(), team.grid(m), blockThreads, all(3), m, k, down, along, team.lanes, flag(team.across))),
		check("matrix times vector", elements(rows, columns), rows, columns)
}

// Outer computes the product of each of the m elements of a with each of the n
// elements of b.
func Outer(t Type, m, n int) (Operation, error) {
	return Spread(t, "⊙", []int{m, n}, []int{1, 0}, []int{0, 1})
}
