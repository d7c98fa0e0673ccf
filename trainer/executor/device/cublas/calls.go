package cublas

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/device"
)

// functions are those that are called.
const functions = `
cublasGetProperty cublasCreate_v2 cublasDestroy_v2 cublasSetStream_v2 cublasSetWorkspace_v2 cublasSetMathMode
cublasSgemm_v2 cublasDgemm_v2 cublasSgemmStridedBatched cublasDgemmStridedBatched`

// calls are the addresses of the functions, by name.
type calls map[string]uintptr

// statuses are cuBLAS's names of what its functions return.
var statuses = map[int]string{
	1:  "CUBLAS_STATUS_NOT_INITIALIZED",
	3:  "CUBLAS_STATUS_ALLOC_FAILED",
	7:  "CUBLAS_STATUS_INVALID_VALUE",
	8:  "CUBLAS_STATUS_ARCH_MISMATCH",
	11: "CUBLAS_STATUS_MAPPING_ERROR",
	13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR",
	15: "CUBLAS_STATUS_NOT_SUPPORTED",
	16: "CUBLAS_STATUS_LICENSE_ERROR",
}

// do calls a function, on the thread that it is on.
//
//go:uintptrescapes
func (c calls) do(name string, args ...uintptr) error { return checked(name, call(c[name], args)) }

// checked turns a status into an error.
func checked(name string, status int) error {
	if status == 0 {
		return nil
	}
	return &device.Error{Call: name, Code: status, Name: statuses[status]}
}

// version is what a library says of itself.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }
