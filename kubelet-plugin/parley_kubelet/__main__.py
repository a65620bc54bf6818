"""`python -m parley_kubelet`, the same as `parley-kubelet`."""

import sys

from parley_kubelet.main import main

sys.exit(main())
