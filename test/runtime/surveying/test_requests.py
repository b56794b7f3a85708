"""Plans on demand: the oldest first, a bounded number, one answer each."""

from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.requests import Request, Requests


def test_ten_wait_and_the_next_one_is_told():
    requests, all_ = Requests(), [Request(None, (float(i), 0.0)) for i in range(12)]
    for request in all_:
        requests.add(request, "route")
    assert len(requests) == 10 and requests.first is all_[0]
    assert not all_[9].future.done()
    for late in all_[10:]:
        plan = late.future.result(0)
        assert not plan and plan.kind == "route" and plan.reason == "10 plans wait already"
    taken = requests.take()
    assert taken is all_[0] and requests.first is all_[1] and len(requests) == 9
    requests.again(taken)
    assert requests.take() is taken and requests.take() is all_[1]


def test_the_first_answer_counts_and_an_error_is_one():
    request, other = Request(None, None), Request(None, None)
    request.answer(Plan("a"))
    request.answer(Plan("b"))
    request.answer(ValueError("late"))
    assert request.future.result(0).kind == "a"
    error = ValueError("early")
    other.answer(error)
    other.answer(Plan("b"))
    assert other.future.exception(0) is error
